"""Middleware that sets the origin of a request and audits changes that no service recorded."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from composer_web.accounts.audit_context import AuditContext, enter
from composer_web.accounts.models import User
from composer_web.accounts.services import audit

SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
LOOKS_ONLY = frozenset({"runs:check", "api-1:validate", "gateway:chat"})
"""POSTs that change nothing: they validate input, or query the policy (the gateway keeps its own record)."""


@sync_and_async_middleware
def middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Set the origin, and write an audit entry for a change that no service recorded."""

    def begin(request: HttpRequest) -> AuditContext:
        via = "api" if request.path.startswith("/api/") else "page"
        origin = AuditContext(via=via, address=_address(request.META.get("REMOTE_ADDR", "")))
        enter(origin)
        return origin

    def untold(request: HttpRequest, answer: HttpResponse, origin: AuditContext) -> bool:
        return request.method not in SAFE and answer.status_code < 400 and not origin.entries

    def handle(request: HttpRequest) -> HttpResponse:
        origin = begin(request)
        try:
            answer: HttpResponse = get_response(request)
            if untold(request, answer, origin):
                _record(request)
            return answer
        finally:
            enter(None)

    async def handle_async(request: HttpRequest) -> HttpResponse:
        origin = begin(request)
        try:
            answer: HttpResponse = await get_response(request)
            if untold(request, answer, origin):
                await sync_to_async(_record)(request)
            return answer
        finally:
            enter(None)

    return handle_async if iscoroutinefunction(get_response) else handle


def _record(request: HttpRequest) -> None:
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
