"""Connections to addresses supplied by users or models, without access to the internal network (SSRF protection).

Each connection looks up the name, checks all of its addresses and connects to one of those, so a different answer a
moment later (DNS rebinding) has no effect. The request still uses the name: the Host header and the TLS certificate
are those of the name, never of the address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpcore
import httpx

from sandbox.network.addresses import allowed, plain

MAX_TRIED = 4
"""Addresses of one name that are connected to, one after another, until one answers."""


class Refused(Exception):
    """The address may not be asked. The message says why, and what to do."""


class Unknown(Exception):
    """Nothing has this name."""


@dataclass(frozen=True, slots=True)
class Guard:
    """`named`: hosts, or host:port, that may be at private addresses. `setting`: the variable that names them."""

    named: frozenset[str] = frozenset()
    setting: str = ""

    @classmethod
    def of(cls, text: str, setting: str) -> Guard:
        """`text`: names separated by commas."""
        return cls(frozenset(filter(None, (name.strip().lower() for name in text.split(",")))), setting)

    def names(self, host: str, port: int) -> bool:
        return not self.named.isdisjoint((host.lower(), f"{host.lower()}:{port}"))

    def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses of a name, each of them judged, in the resolver's order. Raises Refused, Unknown."""
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Unknown(f"the host {host!r} cannot be found: {getattr(error, 'strerror', '') or error}") from error
        found = tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
        for text in found:
            address = ipaddress.ip_address(text.partition("%")[0])
            if not allowed(text, private=True):
                raise Refused(f"{host!r} is at {plain(address)}, where nothing of ours may go")
            if not allowed(text, private=self.names(host, port)):
                remedy = f"; who runs this installation may allow it with {self.setting}={host}:{port}"
                raise Refused(f"{host!r} is at the private address {plain(address)}{remedy if self.setting else ''}")
        return found


class Backend(httpcore.SyncBackend):
    """Connects to what the guard allows."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        end, failed = _end(timeout), None
        for address in self._guard.addresses(host, port)[:MAX_TRIED]:
            try:
                return super().connect_tcp(address, port, _left(end), local_address, socket_options)
            except httpcore.ConnectError as error:
                failed = error
        raise failed or httpcore.ConnectError(f"{host} has no address")


class AsyncBackend(httpcore.AnyIOBackend):
    """The same within an event loop, whose other work goes on while the name is looked up."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        end, failed = _end(timeout), None
        try:
            async with asyncio.timeout(timeout):
                found = await asyncio.to_thread(self._guard.addresses, host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host} was not looked up in {timeout:g} s") from error
        for address in found[:MAX_TRIED]:
            try:
                return await super().connect_tcp(address, port, _left(end), local_address, socket_options)
            except httpcore.ConnectError as error:
                failed = error
        raise failed or httpcore.ConnectError(f"{host} has no address")


class Transport(httpx.HTTPTransport):
    """For an httpx.Client that follows no redirects. A request may raise Refused, Unknown."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(trust_env=False)
        # httpx hands no network backend on: its pool is made anew, with what it trusts.
        self._pool = httpcore.ConnectionPool(ssl_context=trust_context(), network_backend=Backend(guard))


class AsyncTransport(httpx.AsyncHTTPTransport):
    """For an httpx.AsyncClient that follows no redirects. A request may raise Refused, Unknown."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust_context(), max_connections=1_000, network_backend=AsyncBackend(guard)
        )


@lru_cache(maxsize=1)
def trust_context() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _end(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.001, end - time.monotonic())
