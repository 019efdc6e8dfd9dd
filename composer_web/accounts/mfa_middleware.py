"""Enforcement of second factors, and audit entries of log-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.mfa.signals import authenticator_added, authenticator_removed, authenticator_reset
from allauth.mfa.utils import is_mfa_enabled
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.contrib.sessions.backends.base import SessionBase
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils.decorators import sync_and_async_middleware

from composer_web.accounts.audit_context import current
from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.services import audit
from composer_web.env import env

OPEN = ("/2fa/", "/login/", "/logout/", "/reauthenticate/", "/static/", "/oidc/")
"""Paths available without a required second factor: the set-up pages."""
KNOWN = "second_factor"
"""Session key: the session has verified a second factor."""


@sync_and_async_middleware
def second_factor(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Middleware that redirects users subject to `require_mfa` to the set-up until they have a second factor."""

    def open_to_all(request: HttpRequest) -> bool:
        return env().require_mfa == "nobody" or request.path.startswith(OPEN)

    def handle(request: HttpRequest) -> HttpResponse:
        answer: HttpResponse = (
            _send_away(request) if not open_to_all(request) and _lacks(request) else get_response(request)
        )
        return answer

    async def handle_async(request: HttpRequest) -> HttpResponse:
        if not open_to_all(request) and await sync_to_async(_lacks)(request):
            return _send_away(request)
        answer: HttpResponse = await get_response(request)
        return answer

    return handle_async if iscoroutinefunction(get_response) else handle


def _send_away(request: HttpRequest) -> HttpResponse:
    if request.path.startswith("/api/"):
        message = "this installation asks for a second factor: set it up at /2fa/, or use a token"
        return JsonResponse({"error": {"code": "forbidden", "message": message, "field": "", "fields": {}}}, status=403)
    return redirect("mfa_index")


def _lacks(request: HttpRequest) -> bool:
    return isinstance(request.user, User) and lacks_factor(request.user, request.session)


def lacks_factor(user: User, session: SessionBase) -> bool:
    """Whether `require_mfa` demands a second factor that this session has not verified. Shared by pages and the
    websocket. A verified session stores that fact, in requests that save it."""
    wanted = env().require_mfa
    if wanted == "nobody" or (wanted == "admins" and user.role != "admin") or session.get(KNOWN):
        return False
    methods = session.get(AUTHENTICATION_METHODS_SESSION_KEY, [])
    if any(method.get("method") == "socialaccount" for method in methods) or is_mfa_enabled(user):
        session[KNOWN] = True
        return False
    return True


@receiver(user_logged_in)
def _logged_in(sender: object, request: HttpRequest | None, user: User, **_: Any) -> None:
    if request is not None and getattr(request, "resolver_match", None):  # not the test client's own
        audit(actor=user, action="user.login", target=f"user:{user.pk}")


@receiver(user_login_failed)
def _refused(sender: object, credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """The submitted name is unverified, so it is logged as text."""
    origin = current()
    if request is not None:
        name = str(credentials.get("username", ""))[:150] or "nobody"
        AuditEntry.objects.create(actor_name=name, action="user.refused", via=origin.via, address=origin.address)


@receiver([authenticator_added, authenticator_removed, authenticator_reset])
def _factor_changed(
    sender: object, request: HttpRequest, user: User, authenticator: Any, signal: Any, **_: Any
) -> None:
    request.session.pop(KNOWN, None)
    word = "add" if signal is authenticator_added else "remove" if signal is authenticator_removed else "reset"
    name = {"name": str(authenticator)} if authenticator.type == authenticator.Type.WEBAUTHN else {}
    audit(actor=user, action=f"second_factor.{word}", target=f"user:{user.pk}", kind=str(authenticator.type), **name)
