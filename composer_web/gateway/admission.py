"""Who may ask, how often, and who answers: everything that a request needs of Postgres and Valkey, in one place."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from functools import lru_cache

import redis

from composer_web.accounts.models import ApiToken, User
from composer_web.accounts.services import authenticate_token
from composer_web.env import env
from composer_web.gateway.configuration import Settings, stored
from composer_web.gateway.errors import NotAllowed, RateLimited, Unauthenticated, Unavailable
from composer_web.gateway.routing import Target, choose
from composer_web.gateway.wire import ChatRequest

SCOPE = "gateway"
SESSION_HEADER, RECORD_HEADER = "X-OpenComposer-Session", "X-OpenComposer-Record"
YES = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Caller:
    user: User
    token: ApiToken


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a client says about its session, by headers or by `metadata`."""

    session: str
    record: bool
    user: str
    """The end user as the client calls them; stored only as a keyed digest."""


@dataclass(frozen=True, slots=True)
class Admitted:
    caller: Caller
    target: Target
    settings: Settings
    erasures: int = 0
    """Deletions of sessions when the request came: what was remembered before the newest of them is void."""


def wishes(request: ChatRequest, headers: dict[str, str]) -> Wishes:
    given = request.metadata or {}
    session = headers.get(SESSION_HEADER.lower()) or given.get("session_id") or ""
    record = headers.get(RECORD_HEADER.lower()) or given.get("record") or ""
    return Wishes(session[:120], record.lower() in YES, request.user or given.get("user_id") or "")


def authenticate(authorization: str) -> Caller:
    """Raises Unauthenticated, NotAllowed. The scope must be named: wider ones do not include the gateway."""
    scheme, _, secret = authorization.partition(" ")
    token = authenticate_token(secret.strip()) if scheme.lower() == "bearer" and secret else None
    if token is None:
        raise Unauthenticated("send `Authorization: Bearer <token>` with a living token of scope `gateway`")
    if SCOPE not in token.scopes:
        raise NotAllowed(f"this needs a token with scope {SCOPE!r}; it has {', '.join(token.scopes)}")
    return Caller(token.user, token)


def admit(request: ChatRequest, authorization: str, asked: Wishes) -> Admitted:
    """Raises GatewayError."""
    caller = authenticate(authorization)
    settings, erasures = stored()
    limit(caller.token.pk, settings.requests_per_minute)
    target = choose(request.model, key=affinity(request, caller, asked), settings=settings)
    return Admitted(caller, target, settings, erasures)


def affinity(request: ChatRequest, caller: Caller, asked: Wishes) -> str:
    """What a session is recognised by: its name, else its user, else how its conversation begins."""
    if asked.session or asked.user:
        return f"{caller.user.pk}:{asked.session or asked.user}"
    opening = [message.text for message in request.messages[:2]]
    return f"{caller.token.pk}:{hashlib.sha256(json.dumps(opening).encode()).hexdigest()}"


@lru_cache(maxsize=1)
def _broker() -> redis.Redis:
    return redis.Redis.from_url(env().redis_url, socket_timeout=2.0, socket_connect_timeout=2.0)


def limit(token: int, most: int) -> None:
    """Counts one request of this minute. Raises RateLimited, Unavailable."""
    minute, passed = divmod(time.time(), 60)
    key = f"gateway:rate:{token}:{int(minute)}"
    try:
        pipe = _broker().pipeline(transaction=False)
        pipe.incr(key)
        pipe.expire(key, 120)
        count = int(pipe.execute()[0])
    except redis.RedisError as error:
        raise Unavailable(f"requests cannot be counted, Valkey does not answer: {error}") from error
    if count > most:
        seconds = max(1, round(60 - passed))
        raise RateLimited(f"this token may ask {most} times a minute; try again in {seconds} s", seconds=seconds)
