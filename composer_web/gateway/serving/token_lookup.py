"""Token, channel settings and promotion of a request, read in one statement.

Every request reads them anew, so that a revoked token, a changed setting and a rollback take effect with the next
request. The SQL is written by hand, because building it from models takes several times as long as Postgres takes to
execute it. The last result is also cached, but only to start work early (`chat`); nothing is sent before the new read.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import psycopg
from django.db import connection
from django.utils import timezone

from composer_web.accounts.models import ApiToken, User
from composer_web.gateway.configuration import Settings
from composer_web.policies.promotion.services import CHANNEL

MAX = 1000
"""Maximum number of cached tokens."""
SEEN = timedelta(minutes=1)
"""Minimum interval between two updates of a token's last use."""
STATEMENT = """
SELECT t.id, t.user_id, u.role, u.is_active, t.project_id, t.scopes::text, t.last_used_at,
       c.configured::text, coalesce(c.erasures, 0),
       p.policy_id, a.name, p.version, p.canary_policy_id, b.name, p.canary_version, p.canary_share
FROM accounts_apitoken t
JOIN accounts_user u ON u.id = t.user_id AND u.is_active
LEFT JOIN gateway_channel c ON c.name = %(channel)s
LEFT JOIN LATERAL (
    SELECT * FROM policies_promotion WHERE channel = %(channel)s ORDER BY id DESC LIMIT 1
) p ON true
LEFT JOIN policies_policy a ON a.id = p.policy_id
LEFT JOIN policies_policy b ON b.id = p.canary_policy_id
WHERE t.digest = %(digest)s AND t.revoked_at IS NULL AND t.expires_at > %(now)s
  AND (t.project_id IS NULL OR u.role = 'admin' OR EXISTS (
    SELECT 1 FROM accounts_project j LEFT JOIN accounts_membership m ON m.project_id = j.id AND m.user_id = u.id
    WHERE j.id = t.project_id AND j.archived_at IS NULL AND (j.open OR m.id IS NOT NULL)
  ))
"""
"""A project token is invalid if its owner has no access to the project (as decided by `accounts.permissions`)."""


@dataclass(frozen=True, slots=True)
class Served:
    """A policy version."""

    policy_id: int
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class Serving:
    """Versions that the channel serves."""

    promoted: Served
    canary: Served | None = None
    share: float = 0.0
    """Share of sessions that the canary serves."""


@dataclass(frozen=True, slots=True)
class TokenStatus:
    """`token` and `user` have only the columns that admission and recording need. Django loads the others on access."""

    token: ApiToken
    user: User
    settings: Settings
    erasures: int
    serving: Serving | None


def read(secret: str) -> TokenStatus | None:
    """None unless the secret belongs to a valid token of an active user. Records the use."""
    now = timezone.now()
    digest = _digest(secret)
    row = find_row({"channel": CHANNEL, "digest": digest, "now": now})
    if row is None:
        forget(secret)
        return None
    pk, owner, role, active, project, scopes, used, configured, erasures, *serving = row
    _note(pk, used, now)
    user = User.from_db("default", ["id", "is_active", "role"], [owner, active, role])  # in the order of the model
    token = ApiToken.from_db(
        "default", ["id", "user_id", "scopes", "project_id"], [pk, owner, json.loads(scopes), project]
    )
    found = TokenStatus(token, user, _settings(configured or "{}"), erasures, _serving(*serving))
    with _lock:
        _last[digest] = found
        _last.move_to_end(digest)
        while len(_last) > MAX:
            _last.popitem(last=False)
    return found


def find_row(given: dict[str, object]) -> tuple[Any, ...] | None:
    """Execute the prepared statement. Postgres takes four times as long to plan as to execute it, so each connection
    plans it once."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(STATEMENT, given, prepare=True)
        return cursor.fetchone()


_last: OrderedDict[str, TokenStatus] = OrderedDict()
_lock = threading.Lock()


def last(secret: str) -> TokenStatus | None:
    """Last result for the secret in this process: a guess that grants nothing."""
    with _lock:
        return _last.get(_digest(secret))


def forget(secret: str) -> None:
    """Drop the cached result: no early work starts for the secret until its next request is admitted."""
    with _lock:
        _last.pop(_digest(secret), None)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _note(pk: int, used: datetime | None, now: datetime) -> None:
    if used is None or now - used > SEEN:
        ApiToken.objects.filter(pk=pk).update(last_used_at=now)


@lru_cache(maxsize=64)
def _settings(configured: str) -> Settings:
    return Settings.model_validate_json(configured)


def _serving(
    policy: int | None,
    name: str,
    version: int,
    canary: int | None,
    canary_name: str,
    canary_version: int,
    share: float,
) -> Serving | None:
    if policy is None:
        return None
    beside = None if canary is None else Served(canary, canary_name, canary_version)
    return Serving(Served(policy, name, version), beside, share)
