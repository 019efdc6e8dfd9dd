"""Where the change that is being made comes from: a page, the API with one token, or the product itself.

A context variable, so that no service has to pass it on; `audit` reads it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from composer_web.accounts.models import ApiToken, User

SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
LOOKS_ONLY = frozenset({"runs:check", "api-1:validate", "gateway:chat"})
"""POSTs that change nothing: they only check what was typed, or ask the policy (the gateway keeps its own record)."""


@dataclass(slots=True)
class Origin:
    """`entries` counts what the audit log got from this request."""

    via: str = "system"
    address: str | None = None
    credential: str = ""
    entries: int = 0


_now: ContextVar[Origin | None] = ContextVar("origin", default=None)


def current() -> Origin:
    """Of the request in progress; outside of one the product itself."""
    return _now.get() or Origin()


def used_token(token: ApiToken) -> None:
    """The request in progress was made with `token`."""
    if (origin := _now.get()) is not None:
        origin.via, origin.credential = "token", f"{token.name} ({token.prefix}…)"


@sync_and_async_middleware
def middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Notes the origin, and writes an entry for a change of which no service told: nothing goes unrecorded."""

    def begin(request: HttpRequest) -> Origin:
        via = "api" if request.path.startswith("/api/") else "page"
        origin = Origin(via=via, address=_address(request.META.get("REMOTE_ADDR", "")))
        _now.set(origin)
        return origin

    def untold(request: HttpRequest, answer: HttpResponse, origin: Origin) -> bool:
        return request.method not in SAFE and answer.status_code < 400 and not origin.entries

    def handle(request: HttpRequest) -> HttpResponse:
        origin = begin(request)
        try:
            answer: HttpResponse = get_response(request)
            if untold(request, answer, origin):
                _record(request)
            return answer
        finally:
            _now.set(None)

    async def handle_async(request: HttpRequest) -> HttpResponse:
        origin = begin(request)
        try:
            answer: HttpResponse = await get_response(request)
            if untold(request, answer, origin):
                await sync_to_async(_record)(request)
            return answer
        finally:
            _now.set(None)

    return handle_async if iscoroutinefunction(get_response) else handle


def _record(request: HttpRequest) -> None:
    from composer_web.accounts.services import audit

    found = request.resolver_match
    if found is None or found.view_name in LOOKS_ONLY:
        return
    caller = getattr(request, "auth", None) or getattr(request, "user", None)
    if isinstance(caller, User):
        audit(actor=caller, action=f"request.{str(request.method).lower()}", target=request.path[:120])


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None  # a Unix socket has none
