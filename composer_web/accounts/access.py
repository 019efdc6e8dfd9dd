"""Project and role of the current request: a context variable read by managers and `User.may`.

Outside of a request (worker, trainer, command) it is unset, and nothing is filtered.
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
    """`scope` is the only visible project. None if all are visible, as in an installation with one project."""

    user_id: int
    role: str
    project: int
    """Project of new objects."""
    scope: int | None = None
    libraries: tuple[int, ...] = ()
    """Projects whose tasks, suites, environments and policies are visible in addition."""
    ceiling: str = "admin"
    """Maximum effective role, whatever the user's own role is. For a token, it follows from its scopes."""


_now: ContextVar[Access | None] = ContextVar("access", default=None)


def current() -> Access | None:
    """Return the access of the current request, or None outside of a request."""
    return _now.get()


def begin(access: Access) -> None:
    """Set the access of the current request. The middleware clears it."""
    _now.set(access)


@contextmanager
def acting(access: Access | None) -> Iterator[None]:
    """Run the block with this access. With None it sees everything, for counts across projects."""
    before = _now.set(access)
    try:
        yield
    finally:
        _now.reset(before)


def everywhere() -> Any:
    """Run the block with access to every project, for unique names and global limits."""
    return acting(None)


@sync_and_async_middleware
def middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Clear the access after the request. A streaming response is produced under the same access."""

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
