"""In which project the request in progress acts, and as what: a context variable that managers and `User.may` read.

Outside of a request (worker, trainer, command) there is none, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.decorators import sync_and_async_middleware


@dataclass(frozen=True, slots=True)
class Access:
    """`scope` is the only project whose rows are seen; None where all are, as in an installation with one project."""

    user_id: int
    role: str
    project: int
    """Where new things go."""
    scope: int | None = None
    libraries: tuple[int, ...] = ()
    """Projects whose tasks, suites, environments and policies are seen beside the own ones."""
    ceiling: str = "admin"
    """Widest role that counts, whatever that of the person is: of a token, what its scopes allow."""


_now: ContextVar[Access | None] = ContextVar("access", default=None)


def current() -> Access | None:
    """Of the request in progress; None outside of one."""
    return _now.get()


def begin(access: Access) -> None:
    """From here on the request acts so; the middleware ends it."""
    _now.set(access)


@contextmanager
def acting(access: Access | None) -> Iterator[None]:
    """The code inside acts so; with None it sees everything, for what must count across projects."""
    before = _now.set(access)
    try:
        yield
    finally:
        _now.reset(before)


def everywhere() -> Any:
    """The code inside sees every project: names that must be unique, limits that count all."""
    return acting(None)


@sync_and_async_middleware
def middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Ends what a request began; an answer that is streamed later is made under the same access."""

    def handle(request: HttpRequest) -> HttpResponseBase:
        with acting(None):
            answer: HttpResponseBase = get_response(request)
            return _streamed(answer)

    async def handle_async(request: HttpRequest) -> HttpResponseBase:
        with acting(None):
            answer: HttpResponseBase = await get_response(request)
            return _streamed(answer)

    return handle_async if iscoroutinefunction(get_response) else handle


def _streamed(answer: HttpResponseBase) -> HttpResponseBase:
    access = current()
    if access is not None and isinstance(answer, StreamingHttpResponse):
        parts: Any = answer.streaming_content
        answer.streaming_content = _later_async(parts, access) if answer.is_async else _later(parts, access)
    return answer


def _later(parts: Iterable[bytes], access: Access) -> Iterator[bytes]:
    rest = iter(parts)
    while True:
        with acting(access):
            part = next(rest, None)
        if part is None:
            return
        yield part


async def _later_async(parts: AsyncIterable[bytes], access: Access) -> AsyncIterator[bytes]:
    rest = aiter(parts)
    while True:
        with acting(access):
            part = await anext(rest, None)
        if part is None:
            return
        yield part
