"""ASGI handler for chat completions. It skips what only pages need.

Django runs every synchronous middleware in a thread, once before and once after the view. It searches the whole URL
table, and passes each response through a dozen layers. That takes longer than the gateway's own work before the first
token. A chat completion has a token but no cookie, form or page, so sessions, log-in, CSRF and messages are not needed.
The protections stay: the host check, HTTPS and the security headers come from Django's own middlewares. They are
computed once and are the same for every response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any, cast

from csp.middleware import CSPMiddleware
from django.core.exceptions import RequestAborted, SuspiciousOperation
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.common import CommonMiddleware
from django.middleware.security import SecurityMiddleware
from django.urls import ResolverMatch, resolve

from composer_web.accounts import access
from composer_web.core.network.latency import timing
from composer_web.gateway.errors import GatewayError
from composer_web.gateway.serving.openai_types import MAX_BODY

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
PATH = "/v1/chat/completions"
"""URL served here. `/v1/models` is requested rarely and takes the normal path."""
MIDDLEWARES: tuple[Callable[[Any], Any], ...] = (
    SecurityMiddleware,
    CSPMiddleware,
    CommonMiddleware,
    XFrameOptionsMiddleware,
)
"""Middlewares without I/O, outermost first, in the order of the settings."""
log = logging.getLogger(__name__)


def _unused(request: HttpRequest) -> HttpResponseBase:
    raise AssertionError("the middlewares are asked for what they do before and after, and call nothing")


@lru_cache(maxsize=1)
def _guards() -> tuple[Any, ...]:
    return tuple(kind(_unused) for kind in MIDDLEWARES)


@lru_cache(maxsize=1)
def _match() -> ResolverMatch:
    """URL match of the path: its view, and the name under which requests are counted."""
    return resolve(PATH)


_headers: dict[bool, dict[str, str]] = {}
"""Headers that the middlewares add to a response, by whether it uses HTTPS."""


def _protected(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    secure = request.is_secure()
    if secure not in _headers:
        bare: Any = HttpResponse()
        for guard in reversed(_guards()):
            if hasattr(guard, "process_response"):
                bare = guard.process_response(request, bare)
        _headers[secure] = {
            name: value for name, value in bare.items() if name not in ("Content-Type", "Content-Length")
        }
    for name, value in _headers[secure].items():
        answer.headers.setdefault(name, value)
    if not answer.streaming:
        answer.headers.setdefault("Content-Length", str(len(cast(HttpResponse, answer).content)))
    return answer


def _refused(request: HttpRequest) -> HttpResponseBase | None:
    """Response that rejects the request before it is handled, for example for an unknown host or when HTTPS is
    required."""
    for guard in _guards():
        before = getattr(guard, "process_request", None)
        if before is not None and (answer := before(request)) is not None:
            return cast(HttpResponseBase, answer)
    return None


async def _answered(request: HttpRequest) -> HttpResponseBase:
    """Raises nothing: an internal error becomes a response without details."""
    request.resolver_match = found = _match()
    answer: HttpResponseBase
    try:
        with access.acting(None):
            answer = _refused(request) or await found.func(request)
    except SuspiciousOperation as error:
        log.warning("a request is refused: %s", error)
        answer = HttpResponseBadRequest("Bad Request")
    except Exception:
        log.exception("an answer of the gateway failed")
        answer = GatewayError("a fault of the gateway's own; its log has it").response()
    return _protected(request, answer)


class AnswersHandler(ASGIHandler):
    """Handles Django requests and responses on a shorter path. The body is held in memory up to its limit."""

    def load_middleware(self, is_async: bool = False) -> None:
        self.respond = timing(_answered)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:  # type: ignore[override]
        """Uses no thread per request and sends no request signals. Receivers of those run in a thread and close its
        connections; the gateway releases its own connections."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
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
        await self.send_response(await self.respond(request), send)

    async def read_body(self, receive: Receive) -> BytesIO:  # type: ignore[override]
        """Read at most one byte above the limit, so that the view detects an oversized body. The rest is dropped."""
        body = BytesIO()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestAborted
            body.write(message.get("body", b"")[: MAX_BODY + 1 - body.tell()])
            if not message.get("more_body"):
                body.seek(0)
                return body
