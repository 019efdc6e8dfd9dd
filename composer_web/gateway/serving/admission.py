"""Authentication, rate limiting and routing of a request: everything that needs Postgres and Valkey, in one place."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import orjson
import redis

from composer_web.accounts.models import ApiToken, User
from composer_web.env import env
from composer_web.gateway.configuration import Settings
from composer_web.gateway.errors import BadRequest, GatewayError, NotAllowed, RateLimited, Unauthenticated, Unavailable
from composer_web.gateway.serving import token_lookup
from composer_web.gateway.serving.openai_types import ChatRequest
from composer_web.gateway.serving.routing import Target, at_once, choose
from composer_web.gateway.serving.token_lookup import TokenStatus
from composer_web.policies.promotion.services import CHANNEL

SCOPE = "gateway"
SESSION_HEADER, RECORD_HEADER = "X-OpenComposer-Session", "X-OpenComposer-Record"
YES = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Caller:
    user: User
    token: ApiToken


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a client states about its session, in headers or in `metadata`."""

    session: str
    record: bool
    user: str
    """The client's name for the end user. Stored only as a keyed digest."""


@dataclass(frozen=True, slots=True)
class Admitted:
    caller: Caller
    target: Target
    settings: Settings
    erasures: int = 0
    """Number of session deletions when the request arrived. Anything remembered before the newest deletion is
    invalid."""


def wishes(request: ChatRequest, headers: Mapping[str, str]) -> Wishes:
    """Raises BadRequest."""
    given = request.metadata or {}
    session = headers.get(SESSION_HEADER.lower()) or given.get("session_id") or ""
    record = headers.get(RECORD_HEADER.lower()) or given.get("record") or ""
    if "\0" in session:
        raise BadRequest("the session's name has a NUL character", param="metadata")
    return Wishes(session[:120], record.lower() in YES, request.user or given.get("user_id") or "")


def authenticate(authorization: str) -> TokenStatus:
    """Raises Unauthenticated, NotAllowed. The token must have the gateway scope itself; wider scopes do not include
    it."""
    secret = _secret(authorization)
    found = token_lookup.read(secret) if secret else None
    if found is None:
        raise Unauthenticated("send `Authorization: Bearer <token>` with a living token of scope `gateway`")
    if SCOPE not in found.token.scopes:
        raise NotAllowed(f"this needs a token with scope {SCOPE!r}; it has {', '.join(found.token.scopes)}")
    return found


def admit(request: ChatRequest, authorization: str, asked: Wishes) -> Admitted:
    """Raises GatewayError."""
    found = authenticate(authorization)
    try:
        limit(found.token.pk, found.settings.requests_per_minute)
    except GatewayError:
        token_lookup.forget(_secret(authorization))  # who asks too often has nothing begun
        raise
    key = affinity(request, found, asked)
    target = choose(request.model, key=key, settings=found.settings, serving=found.serving)
    return Admitted(Caller(found.user, found.token), target, found.settings, found.erasures)


def foreseen(request: ChatRequest, authorization: str, asked: Wishes) -> Admitted | None:
    """Predicted result of `admit`, based on the last request with this token. Makes no query and grants nothing:
    results of work started with it must not be sent before `admit` has returned the same."""
    found = token_lookup.last(_secret(authorization))
    if found is None or found.serving is None or SCOPE not in found.token.scopes or request.model != CHANNEL:
        return None
    target = at_once(found.serving, affinity(request, found, asked))
    return Admitted(Caller(found.user, found.token), target, found.settings, found.erasures) if target else None


def _secret(authorization: str) -> str:
    scheme, _, secret = authorization.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def affinity(request: ChatRequest, caller: Caller | TokenStatus, asked: Wishes) -> str:
    """Session key: the session's name, else its user, else the beginning of its conversation."""
    if asked.session or asked.user:
        return f"{caller.user.pk}:{asked.session or asked.user}"
    opening = [message.text for message in request.messages[:2]]
    return f"{caller.token.pk}:{hashlib.sha256(orjson.dumps(opening)).hexdigest()}"


@lru_cache(maxsize=1)
def _broker() -> redis.Redis:
    return redis.Redis.from_url(env().redis_url, socket_timeout=2.0, socket_connect_timeout=2.0)


def limit(token: int, most: int) -> None:
    """Count one request of the current minute. Raises RateLimited, Unavailable."""
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
