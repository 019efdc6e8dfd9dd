"""Who must show a second factor, and what log-ins leave in the audit log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.mfa.signals import authenticator_added, authenticator_removed, authenticator_reset
from allauth.mfa.utils import is_mfa_enabled
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect

from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.origin import current
from composer_web.accounts.services import audit
from composer_web.env import env

OPEN = ("/2fa/", "/login/", "/logout/", "/reauthenticate/", "/static/", "/oidc/")
"""What somebody without the second factor that is asked for still reaches: the pages that set it up."""
KNOWN = "second_factor"
"""Session key: this session has shown that it has one."""


def second_factor(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: sends people whom `require_mfa` names to the set-up until they have a second factor."""

    def handle(request: HttpRequest) -> HttpResponse:
        wanted = env().require_mfa
        if wanted == "nobody" or request.path.startswith(OPEN) or not _lacks(request, wanted):
            return get_response(request)
        if request.path.startswith("/api/"):
            message = "this installation asks for a second factor: set it up at /2fa/, or use a token"
            return JsonResponse(
                {"error": {"code": "forbidden", "message": message, "field": "", "fields": {}}}, status=403
            )
        return redirect("mfa_activate_totp")

    return handle


def _lacks(request: HttpRequest, wanted: str) -> bool:
    user = request.user
    if not isinstance(user, User) or (wanted == "admins" and user.role != "admin") or request.session.get(KNOWN):
        return False
    methods = request.session.get(AUTHENTICATION_METHODS_SESSION_KEY, [])
    if any(method.get("method") == "socialaccount" for method in methods) or is_mfa_enabled(user):
        request.session[KNOWN] = True
        return False
    return True


@receiver(user_logged_in)
def _logged_in(sender: object, request: HttpRequest | None, user: User, **_: Any) -> None:
    if request is not None and getattr(request, "resolver_match", None):  # not the test client's own
        audit(actor=user, action="user.login", target=f"user:{user.pk}")


@receiver(user_login_failed)
def _refused(sender: object, credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """The name that was typed is no person's until proved: it stands as text."""
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
    audit(actor=user, action=f"second_factor.{word}", target=f"user:{user.pk}", kind=str(authenticator.type))
