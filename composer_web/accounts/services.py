"""Writes of users, tokens and the audit log."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from composer_web.accounts.audit_context import current
from composer_web.accounts.models import ApiToken, AuditEntry, Role, User
from composer_web.accounts.permissions import places_of, reach
from composer_web.core.errors import UserError

SCOPES = {
    "metrics": Role.OPERATOR,  # only /metrics, for Prometheus
    "gateway": Role.VIEWER,  # the narrowest: only the gateway's own addresses
    "read": Role.VIEWER,
    "review": Role.REVIEWER,
    "operate": Role.OPERATOR,
    "admin": Role.ADMIN,
}
"""Token scope → role that its owner must have for it to be valid."""

TOKEN_MARK = "oc_"
MAX_DAYS = 365


def audit(*, actor: User | None, action: str, target: str = "", **detail: Any) -> AuditEntry:
    """Audit a change in the caller's transaction, after making it. The database adds the values before and after."""
    origin = current()
    origin.entries += 1
    return AuditEntry.objects.create(
        actor=actor,
        actor_name=actor.get_username() if actor else "system",
        action=action,
        target=target,
        detail=detail,
        via=origin.via,
        address=origin.address,
        credential=origin.credential,
    )


@transaction.atomic
def create_user(*, username: str, password: str, role: str = Role.VIEWER, by: User | None = None) -> User:
    """Create a user who can log in. Raises UserError for a taken name, a weak password or an unknown role."""
    if role not in Role.values:
        raise UserError("role", f"role {role!r} is unknown; use one of {', '.join(Role.values)}")
    if User.objects.filter(username=username).exists():
        raise UserError("username", f"the name {username!r} is taken; choose another")
    user = User(username=username, role=role)
    try:
        validate_password(password, user)
        user.set_password(password)
        user.full_clean()
    except ValidationError as error:
        raise UserError(
            "password" if not hasattr(error, "error_dict") else "username", " ".join(error.messages)
        ) from error
    user.save()
    audit(actor=by, action="user.create", target=f"user:{user.pk}", username=username, role=role)
    return user


@transaction.atomic
def set_role(*, user: User, role: str, by: User | None) -> User:
    if role not in Role.values:
        raise UserError("role", f"role {role!r} is unknown; use one of {', '.join(Role.values)}")
    before, user.role = user.role, role
    user.save(update_fields=["role"])
    audit(actor=by, action="user.role", target=f"user:{user.pk}", before=before, after=role)
    return user


@transaction.atomic
def create_token(
    *, user: User, name: str, scopes: Iterable[str], days: int = 90, project: str = "", by: User | None = None
) -> tuple[ApiToken, str]:
    """A token and its secret, which is shown this one time; with `project` it is valid in that one only. Raises UserError.

    A scope above the owner's widest role is refused: a token never may do more than its owner, and when it is used the
    role in the project of what it asks for counts.
    """
    places = reach(user)
    bound = next((place for place in places if place["slug"] == project), None)
    if project and bound is None:
        raise UserError("project", f"you are in no project {project[:40]!r}")
    held = {bound["role"]} if bound else {user.role, *(place["role"] for place in places)}
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        raise UserError("scopes", f"choose scopes of {', '.join(SCOPES)}; found {', '.join(unknown) or 'none'}")
    widest = max(held, key=Role.values.index)
    beyond = [scope for scope in wanted if Role.values.index(SCOPES[scope]) > Role.values.index(widest)]
    if beyond or not user.is_active:
        raise UserError("scopes", f"your role {widest} does not include {', '.join(beyond)}")
    if not 1 <= days <= MAX_DAYS:
        raise UserError("days", f"a token lives 1 to {MAX_DAYS} days, not {days}")
    if not name.strip():
        raise UserError("name", "give the token a name that says where it is used")
    secret = TOKEN_MARK + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=name.strip()[:80],
        prefix=secret[:9],
        digest=_digest(secret),
        scopes=wanted,
        project_id=bound["id"] if bound else None,
        expires_at=timezone.now() + timedelta(days=days),
    )
    audit(actor=by or user, action="token.create", target=f"token:{token.pk}", name=token.name, scopes=wanted)
    return token, secret


@transaction.atomic
def revoke_token(*, token: ApiToken, by: User) -> ApiToken:
    """Revoke a token. Raises UserError unless it is the caller's own or `by` is an admin."""
    if token.user_id != by.pk and not by.may(Role.ADMIN):
        raise UserError("token", "only its owner or an admin can revoke a token")
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        audit(actor=by, action="token.revoke", target=f"token:{token.pk}", name=token.name)
    return token


def authenticate_token(secret: str) -> ApiToken | None:
    """Valid token for a secret, with its user. Records the use at most once a minute."""
    known = ApiToken.objects.select_related("user").annotate(placed=places_of("user_id"))
    token = known.filter(digest=_digest(secret), revoked_at=None).first()
    now = timezone.now()
    if token is None or token.expires_at <= now or not token.user.is_active:
        return None
    token.user.__dict__["placed"] = token.placed
    if token.last_used_at is None or now - token.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def allows(token: ApiToken, scope: str) -> bool:
    """Whether the token has `scope` (or a wider one) and its owner still has the required role."""
    order = list(SCOPES)
    carried = any(order.index(own) >= order.index(scope) for own in token.scopes if own in SCOPES)
    return carried and token.user.may(SCOPES[scope])


def ceiling_of(token: ApiToken) -> str:
    """Maximum role of requests with this token."""
    held = [SCOPES[scope] for scope in token.scopes if scope in ("read", "review", "operate", "admin")]
    return max(held, key=Role.values.index, default=Role.VIEWER)


def _digest(secret: str) -> str:
    # The secret has 256 random bits: a plain hash cannot be searched, a slow one would only slow every call.
    return hashlib.sha256(secret.encode()).hexdigest()
