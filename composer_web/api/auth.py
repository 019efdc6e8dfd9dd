"""Who may call an operation: a token in `Authorization: Bearer`, or the session of a logged-in page (with CSRF)."""

from __future__ import annotations

from dataclasses import replace

from django.conf import settings
from django.http import HttpRequest
from ninja.security import HttpBearer
from ninja.security.apikey import APIKeyCookie
from ninja.utils import check_csrf

from composer_web.accounts.access import begin
from composer_web.accounts.audit_context import used_token
from composer_web.accounts.models import ApiToken, User
from composer_web.accounts.permissions import enter
from composer_web.accounts.services import SCOPES, allows, authenticate_token, ceiling_of


class Forbidden(Exception):
    """Known, but not allowed. The message names the missing scope."""


class CsrfFailed(Exception):
    """A page's request without its CSRF token, or with a wrong one."""


class Token(HttpBearer):
    """Bearer token with the operation's scope."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        found = authenticate_token(token)
        if found is None:
            return None
        used_token(found)
        access = enter(request, found.user, found)
        if not allows(found, self.scope):
            raise Forbidden(
                f"this needs a token with scope {self.scope!r} of a user whose role includes it; it has {found.scopes}"
            )
        begin(replace(access, ceiling=ceiling_of(found)))
        request.api_token = found  # type: ignore[attr-defined]
        return found.user


class Session(APIKeyCookie):
    """Session cookie of a person whose role includes the operation's scope; CSRF is checked."""

    param_name = settings.SESSION_COOKIE_NAME

    def __init__(self, scope: str) -> None:
        super().__init__(csrf=False)
        self.scope = scope

    def authenticate(self, request: HttpRequest, key: str | None) -> User | None:
        if check_csrf(request):
            raise CsrfFailed
        user = request.user
        if not isinstance(user, User):
            return None
        role, access = SCOPES[self.scope], enter(request, user)
        if not user.may(role):
            raise Forbidden(f"this needs the role {role}; yours is {access.role or 'none: you are in no project'}")
        return user


def needs(scope: str) -> list[Token | Session]:
    """`auth=` of an operation: token first, then session."""
    return [Token(scope), Session(scope)]


def caller(request: HttpRequest) -> User:
    """The authenticated user of an API request."""
    user: User = request.auth  # type: ignore[attr-defined]
    return user


def token_of(request: HttpRequest) -> ApiToken | None:
    """The token of an API request; None for a signed-in page."""
    found: ApiToken | None = getattr(request, "api_token", None)
    return found
