"""A registry made here, and the proxy in front of it: at a socket of the test, or at that of a real sandbox."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from sandbox.network.audit import AuditRecord
from sandbox.network.gateway import RegistryGateway
from sandbox.network.policy import NpmRules, RegistryPolicy
from sandbox.network.upstream import Upstream, Upstreams

from .local_registry import LocalRegistry


@pytest.fixture
async def registry() -> AsyncIterator[LocalRegistry]:
    async with LocalRegistry() as made:
        yield made


def upstreams_of(registry: LocalRegistry, **fields: object) -> Upstreams:
    """Every kind of registry at the local one; `fields` go to each."""
    options = {"private": True, **fields}
    return Upstreams(
        python=(Upstream.model_validate({"url": registry.index, **options}),),
        npm=Upstream.model_validate({"url": f"{registry.origin}/npm/", **options}),
        go=Upstream.model_validate({"url": f"{registry.origin}/go/", **options}),
    )


@dataclass
class Said:
    """An answer of the proxy."""

    status: int
    reason: str
    body: bytes
    headers: dict[str, str]


@dataclass
class Proxy:
    """A running proxy and its audit log."""

    origin: str
    port: int
    rows: list[AuditRecord] = field(default_factory=list)

    async def get(self, path: str, method: str = "GET", **options: object) -> Said:
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout, skip_auto_headers=["Accept"]) as session:
            async with session.request(method, f"{self.origin}{path}", **options) as answer:  # type: ignore[arg-type]
                return Said(answer.status, answer.reason or "", await answer.read(), dict(answer.headers))

    async def raw(self, request: bytes) -> bytes:
        """What comes back for these bytes until the proxy closes."""
        import asyncio

        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        async with asyncio.timeout(30):
            writer.write(request)
            said = await reader.read()
            writer.close()
            return said


@asynccontextmanager
async def proxy_of(policy: RegistryPolicy, upstreams: Upstreams, sink: object = None) -> AsyncIterator[Proxy]:
    """The proxy of one sandbox, at a loopback socket of this machine."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    proxy = Proxy(f"http://127.0.0.1:{port}", port)
    gateway = RegistryGateway(policy, upstreams, sink or proxy.rows.append, port=port)  # type: ignore[arg-type]
    egress = await gateway.serve("box", listener)
    try:
        yield proxy
    finally:
        await egress.close()


EVERYTHING = RegistryPolicy(npm=NpmRules())
