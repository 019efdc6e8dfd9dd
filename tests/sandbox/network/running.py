"""The proxy of one sandbox at a socket of the test, and a client that is not polite."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from sandbox.network.audit import AuditRecord
from sandbox.network.gateway import RegistryEgress, RegistryGateway
from sandbox.network.policy import RegistryPolicy
from sandbox.network.upstream import Upstream, Upstreams
from tests.sandbox.network.local_registry import LocalRegistry


def upstreams_of(registry: LocalRegistry, **fields: object) -> Upstreams:
    """Every kind of registry at the local one; `fields` go to each."""
    options = {"private": True, **fields}
    return Upstreams(
        python=(Upstream.model_validate({"url": registry.index, **options}),),
        npm=Upstream.model_validate({"url": f"{registry.origin}/npm/", **options}),
        go=Upstream.model_validate({"url": f"{registry.origin}/go/", **options}),
        cargo=Upstream.model_validate({"url": f"{registry.origin}/cargo/", **options}),
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
    egress: RegistryEgress | None = None

    def connections(self) -> int:
        """Open ones, seen from the proxy."""
        assert self.egress is not None
        return len(self.egress._server.connections)

    async def get(self, path: str, method: str = "GET", **options: object) -> Said:
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout, skip_auto_headers=["Accept"]) as session:
            async with session.request(method, f"{self.origin}{path}", **options) as answer:  # type: ignore[arg-type]
                return Said(answer.status, answer.reason or "", await answer.read(), dict(answer.headers))

    async def raw(self, request: bytes) -> bytes:
        """What comes back for these bytes until the proxy closes."""
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
    proxy.egress = await gateway.serve("box", listener)
    try:
        yield proxy
    finally:
        await proxy.egress.close()
