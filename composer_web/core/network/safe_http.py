"""Requests to user-supplied URLs, without access to our own network.

`sandbox.network.guard` checks the resolved address when the connection is made. Redirects are not followed, proxies of
the environment are not used, and only the beginning of a response is read.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

import certifi
import httpcore

from composer_web.env import env
from sandbox.network.guard import Backend, Guard, Refused, Unknown

MAX_ANSWER = 2_000


class Unreachable(Exception):
    """The server did not respond."""


def parse(url: str) -> tuple[str, int]:
    """Host and port. Raises Refused if it is no plain web URL."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise Refused(f"the address cannot be read: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or any(c in url for c in "\r\n\t "):
        raise Refused("the address looks like https://host/path")
    if parts.username or parts.password:
        raise Refused("the address holds a user or password; leave them out")
    return parts.hostname, port


def webhooks() -> Guard:
    return Guard.of(env().webhook_hosts, "OPENCOMPOSER_WEBHOOK_HOSTS")


def endpoints() -> Guard:
    return Guard.of(env().endpoint_hosts, "OPENCOMPOSER_ENDPOINT_HOSTS")


def repositories() -> Guard:
    return Guard.of(env().git_hosts, "OPENCOMPOSER_GIT_HOSTS")


def check(url: str, guard: Guard) -> None:
    """Raises Refused for a forbidden address, Unreachable for a host name that does not resolve."""
    try:
        guard.addresses(*parse(url))
    except Unknown as error:
        raise Unreachable(str(error)) from error


def post(url: str, body: bytes, headers: Mapping[str, str], *, guard: Guard, seconds: float = 10.0) -> int:
    """Status of the response. Raises Refused, Unreachable. TLS verifies the host name, never the address."""
    parse(url)
    timeout = {"connect": seconds, "read": seconds, "write": seconds, "pool": seconds}
    try:
        with (
            httpcore.ConnectionPool(network_backend=Backend(guard), ssl_context=_context()) as pool,
            pool.stream(
                "POST", url, content=body, headers=list(headers.items()), extensions={"timeout": timeout}
            ) as answer,
        ):
            read = 0
            for chunk in answer.iter_stream():
                read += len(chunk)
                if read > MAX_ANSWER:
                    break
            return int(answer.status)
    except Unknown as error:
        raise Unreachable(str(error)) from error
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
        raise Unreachable(f"no answer: {type(error).__name__} {error}".strip()) from error


@lru_cache(maxsize=1)
def _context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certifi.where())
