"""How a request for an answer comes in under ASGI: with a token, and without anything that only pages need.

Django moves every middleware that is not asynchronous to a thread, once before the view and once after it. A dozen of them
take longer than all that the gateway does itself before the first token. A request for an answer has no cookie, no form
and no page, so that sessions, log-in, forms and messages have nothing to do; what protects it stays: the check of the
host and the headers of security, which only compute and so need no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from typing import Any, cast

from csp.middleware import CSPMiddleware
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.common import CommonMiddleware
from django.middleware.security import SecurityMiddleware
from django.urls import set_script_prefix

from composer_web.accounts import access, origin
from composer_web.gateway.wire import MAX_BODY
from composer_web.ops.prometheus import timing

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
PATH = "/v1/chat/completions"
"""Served here; `/v1/models` is asked for once and may take the long way."""
Handler = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


def at_once(kind: Callable[[Any], Any]) -> Callable[[Handler], Handler]:
    """One of Django's middlewares without its threads: for those that neither wait nor ask anybody."""

    def middleware(get_response: Handler) -> Handler:
        made = kind(get_response)
        before, after = getattr(made, "process_request", None), getattr(made, "process_response", None)

        async def handle(request: HttpRequest) -> HttpResponseBase:
            answer = before(request) if before else None
            answer = answer or await get_response(request)
            return cast(HttpResponseBase, after(request, answer) if after else answer)

        return handle

    return middleware


MIDDLEWARES: tuple[Callable[[Any], Any], ...] = (
    timing,
    *(at_once(kind) for kind in (SecurityMiddleware, CSPMiddleware, CommonMiddleware, XFrameOptionsMiddleware)),
    origin.middleware,
    access.middleware,
)
"""Outermost first, in the order of the settings."""


class AnswersHandler(ASGIHandler):
    """Django's own handler, with middlewares of its own and a body that is held in memory up to its bound."""

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        handler: Any = convert_exception_to_response(self._get_response_async)  # type: ignore[attr-defined]
        for middleware in reversed(MIDDLEWARES):
            handler = convert_exception_to_response(middleware(handler))
        self._middleware_chain = handler

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:  # type: ignore[override]
        """Django's, without a thread of its own for each request and without the signals of a request, whose receivers run in
        one: they end the connections of threads that served it, and the gateway gives back each of its own."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        set_script_prefix(get_script_prefix(scope))
        request, refused = self.create_request(scope, body)
        if request is None:
            assert refused is not None, "Django gives a request or an answer"
            await self.send_response(refused, send)
            return
        answering = asyncio.create_task(self._answer(request, send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            answering.cancel()  # of a client that has left; without effect on an answer that is complete
            done, _ = await asyncio.wait({answering, leaving})
        for task in done:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, RequestAborted):
                raise error

    async def _answer(self, request: HttpRequest, send: Send) -> None:
        await self.send_response(await self.get_response_async(request), send)

    async def read_body(self, receive: Receive) -> BytesIO:  # type: ignore[override]
        """At most one byte more than is taken, by which the view sees that there was more; the rest is dropped."""
        body = BytesIO()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestAborted
            body.write(message.get("body", b"")[: MAX_BODY + 1 - body.tell()])
            if not message.get("more_body"):
                body.seek(0)
                return body
