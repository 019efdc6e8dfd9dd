"""Asking addresses that people typed, without reaching into our own network.

The name is looked up when the connection is made, every address is judged, and exactly one of those is connected to: a
name that answers otherwise a moment later (DNS rebinding) changes nothing. Redirects are not followed, proxies of the
environment not used, and of an answer only the beginning is read.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import certifi
import httpcore

from sandbox.network.addresses import forbidden, plain, public

MOST_ANSWER = 2_000


class Refused(Exception):
    """The address may not be asked. The message says why, and what to do."""


class Unreachable(Exception):
    """It was asked and gave no answer."""


def check(host: str, port: int, *, named: Collection[str]) -> str:
    """The address to connect to. `named`: hosts or host:port at private addresses that the installation allows.

    Raises Refused, Unreachable (nothing of that name).
    """
    try:
        found = [entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"the host {host!r} cannot be found: {error}") from error
    allowed = host in named or f"{host}:{port}" in named
    for text in found:
        address = ipaddress.ip_address(str(text).partition("%")[0])
        if forbidden(address):
            raise Refused(f"{host!r} is at {plain(address)}, where nothing of ours may go")
        if not public(address) and not allowed:
            raise Refused(
                f"{host!r} is at the private address {plain(address)}; who runs this installation may allow it with "
                f"OPENCOMPOSER_WEBHOOK_HOSTS={host}:{port}"
            )
    return str(found[0])


class _Guarded(httpcore.SyncBackend):
    """Connects only to what `check` allows."""

    def __init__(self, named: Collection[str]) -> None:
        self.named = named

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return super().connect_tcp(check(host, port, named=self.named), port, timeout, local_address, socket_options)


def parse(url: str) -> tuple[str, int]:
    """Host and port. Raises Refused for what is no plain web address."""
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


def post(url: str, body: bytes, headers: Mapping[str, str], *, named: Collection[str], seconds: float = 10.0) -> int:
    """Status of the answer. Raises Refused, Unreachable. TLS is checked against the name, never the address."""
    parse(url)
    timeout = {"connect": seconds, "read": seconds, "write": seconds, "pool": seconds}
    try:
        with (
            httpcore.ConnectionPool(network_backend=_Guarded(named), ssl_context=_context()) as pool,
            pool.stream(
                "POST", url, content=body, headers=list(headers.items()), extensions={"timeout": timeout}
            ) as answer,
        ):
            read = 0
            for chunk in answer.iter_stream():
                read += len(chunk)
                if read > MOST_ANSWER:
                    break
            return int(answer.status)
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
        raise Unreachable(f"no answer: {type(error).__name__} {error}".strip()) from error


@lru_cache(maxsize=1)
def _context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certifi.where())
