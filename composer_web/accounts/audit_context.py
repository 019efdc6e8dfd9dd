"""Origin of the current change: a page, the API with a token, or the product itself.

A context variable, so that services need not pass it on. `audit` reads it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from composer_web.accounts.models import ApiToken


@dataclass(slots=True)
class AuditContext:
    """`entries` counts the audit entries of this request."""

    via: str = "system"
    address: str | None = None
    credential: str = ""
    entries: int = 0


_now: ContextVar[AuditContext | None] = ContextVar("origin", default=None)


def current() -> AuditContext:
    """Return the origin of the current request. Outside of a request, the origin is the product itself."""
    return _now.get() or AuditContext()


def used_token(token: ApiToken) -> None:
    """Record that `token` authenticated the current request."""
    if (origin := _now.get()) is not None:
        origin.via, origin.credential = "token", f"{token.name} ({token.prefix}…)"


def enter(origin: AuditContext | None) -> None:
    """Set the origin of a new request; None at its end."""
    _now.set(origin)
