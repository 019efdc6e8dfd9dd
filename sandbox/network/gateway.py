"""The way out of a sandbox that may reach package registries only: a small HTTP server at the socket that listens
inside the sandbox, run out here. It makes requests of its own (`fetch.py`) for what the policy allows, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from sandbox.backends.base import NetPolicy, SandboxError
from sandbox.network.answers import Answer, Row, refusal
from sandbox.network.audit import Sink
from sandbox.network.fetch import Fetcher, Meter, NotThere, RegistryFailed
from sandbox.network.paths import Target, parse
from sandbox.network.policy import Denied, RegistryPolicy, Rule
from sandbox.network.registries import Registries
from sandbox.network.upstream import SETTINGS, UpstreamError, Upstreams

log = logging.getLogger(__name__)

PORT = 3141
"""Where a developer's own caching index commonly listens; nothing of a registry's traffic leaves the sandbox otherwise."""
ACCEPT_RETRY_SECONDS = 0.2
SHUTDOWN_SECONDS = 5.0
CHUNK = 1 << 18


def registry_only(policy: RegistryPolicy, upstreams: Upstreams, audit: Sink, *, port: int = PORT) -> NetPolicy:
    """The network policy for `Backend.start`. Raises UpstreamError when a registry that the policy opens is unknown."""
    return NetPolicy(RegistryGateway(policy, upstreams, audit, port=port))


class RegistryGateway:
    """Serves any number of sandboxes; each has its own connections, memory of pages, bounds and audit rows."""

    def __init__(self, policy: RegistryPolicy, upstreams: Upstreams, audit: Sink, *, port: int = PORT) -> None:
        self.port = port
        self._policy, self._upstreams, self._audit = policy, upstreams, audit
        for kind in ("python", "npm", "go", "cargo"):
            if getattr(policy, kind) is not None and not getattr(upstreams, kind):
                raise UpstreamError(f"the policy opens {kind} packages, but no registry is known: set {SETTINGS[kind]}")

    @property
    def variables(self) -> Mapping[str, str]:
        own, seconds = f"http://127.0.0.1:{self.port}", str(int(self._policy.bounds.request_seconds) + 5)
        found: dict[str, str] = {}
        if self._policy.python is not None:
            found |= {
                "PIP_CONFIG_FILE": "/dev/null",  # an image may have one that names other indexes
                "PIP_INDEX_URL": f"{own}/simple/",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PIP_TIMEOUT": seconds,
                "PIP_RETRIES": "1",
                "UV_DEFAULT_INDEX": f"{own}/simple/",
                "UV_HTTP_TIMEOUT": seconds,
                "UV_PYTHON_DOWNLOADS": "never",
            }
        if self._policy.npm is not None:
            found |= {
                "npm_config_registry": f"{own}/npm/",
                "npm_config_audit": "false",
                "npm_config_fund": "false",
                "npm_config_update_notifier": "false",
                "npm_config_fetch_retries": "1",
            }
        if self._policy.go is not None:
            found |= {"GOPROXY": f"{own}/go", "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOVCS": "*:off"}
        if self._policy.cargo is not None:
            found |= {"CARGO_HTTP_TIMEOUT": seconds, "CARGO_NET_RETRY": "1", "CARGO_HTTP_MULTIPLEXING": "false"}
        return found

    @property
    def files(self) -> Mapping[str, str]:
        """Path below the home → text of the settings of tools that read no variable for them. Whoever prepares a sandbox
        writes them, and takes them away before what was prepared is kept."""
        if self._policy.cargo is None:
            return {}
        own = f"sparse+http://127.0.0.1:{self.port}/cargo/"
        text = f'[source.crates-io]\nreplace-with = "task"\n\n[source.task]\nregistry = "{own}"\n'
        return {".cargo/config.toml": text}

    async def serve(self, sandbox: str, listener: socket.socket) -> RegistryEgress:
        return RegistryEgress(sandbox, listener, self._policy, self._upstreams, self._audit, self.port)


class _Connections(web.Server):
    """Tells when one of its connections begins and ends."""

    def __init__(self, egress: RegistryEgress, silence: float) -> None:
        super().__init__(
            egress.handle, handler_cancellation=True, keepalive_timeout=silence, access_log=None, lingering_time=1.0
        )
        self._egress = egress

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._egress.connection_began(handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._egress.connection_ended(handler)


class RegistryEgress:
    """The running proxy of one sandbox. It belongs to the event loop it was made in."""

    def __init__(
        self,
        sandbox: str,
        listener: socket.socket,
        policy: RegistryPolicy,
        upstreams: Upstreams,
        audit: Sink,
        port: int,
    ) -> None:
        self._sandbox, self._listener, self._bounds, self._audit = sandbox, listener, policy.bounds, audit
        self._fetcher = Fetcher(upstreams, policy.bounds)
        self._registries = Registries(policy, upstreams, self._fetcher, f"http://127.0.0.1:{port}")
        self._meter = Meter(policy.bounds)
        self._requests = self._beyond = 0
        self._broken = self._closed = False
        self._free = asyncio.Semaphore(policy.bounds.connections)
        self._busy = 0
        """Open connections and requests in work."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._silent: set[RequestHandler] = set()
        """Connections that have made no request that could be read."""
        self._server = _Connections(self, policy.bounds.silence_seconds)
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(), name=f"registry proxy of {sandbox}")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        self._listener.close()
        for connection in self._server.connections:
            connection.force_close()
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._idle.wait()  # the last rows are written
        except TimeoutError:
            raise SandboxError(f"the registry proxy of {self._sandbox} did not end in {SHUTDOWN_SECONDS:g} s") from None
        finally:
            await self._fetcher.close()
        if self._beyond:
            text = f"{self._beyond} more requests past the bound"
            self._record(Row("", "", decision="denied", rule=Rule.REQUESTS, detail=text, count=self._beyond))

    def connection_began(self, connection: RequestHandler) -> None:
        self._begin()
        self._silent.add(connection)

    def connection_ended(self, connection: RequestHandler) -> None:
        self._free.release()
        if connection in self._silent:
            self._silent.discard(connection)
            row = Row("", "", decision="denied", rule=Rule.REQUEST, detail="a connection without a readable request")
            self._count(row)
            self._record(row)
        self._end()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. It is recorded before the first byte of the answer goes into the sandbox."""
        self._silent.discard(request.protocol)
        self._begin()
        try:
            return await self._handle(request)
        finally:
            self._end()

    def _begin(self) -> None:
        self._busy += 1
        self._idle.clear()

    def _end(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle.set()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        row, meter = Row(request.method, request.raw_path), self._meter.share()
        answer = await self._answer(request, row, meter)
        row.fetched, row.host = meter.fetched, " ".join(meter.hosts)
        self._record(row)
        if self._broken:
            answer.close()
            answer = refusal(row, request, 503, str(Denied(Rule.AUDIT, "the audit log cannot be written")))
        try:
            async with asyncio.timeout(self._bounds.request_seconds):
                return await self._send(request, answer)
        except TimeoutError:  # the client does not read
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from None
        finally:
            answer.close()

    async def _answer(self, request: web.BaseRequest, row: Row, meter: Meter) -> Answer:
        """What to say, whatever happens; the row says why."""
        try:
            self._count(row)
            if row.rule:
                raise Denied(Rule.REQUESTS, f"this sandbox may make {self._bounds.requests} requests", 429)
            async with asyncio.timeout(self._bounds.request_seconds):
                answer = await self._registries.answer(_target(request), request, meter)
            if request.method != "HEAD":
                try:
                    meter.send(answer.size)
                except Denied:
                    answer.close()
                    raise
                row.sent = answer.size
            row.decision, row.rule, row.detail, row.status = answer.decision, answer.rule, answer.detail, answer.status
            return answer
        except Denied as denial:
            row.decision, row.rule = "denied", denial.rule
            return refusal(row, request, denial.status, str(denial))
        except NotThere:
            row.decision, row.rule = "failed", "absent"
            return refusal(row, request, 404, "the registry has no such package or file")
        except RegistryFailed as error:
            row.decision, row.rule = "failed", "registry"
            return refusal(row, request, 502, f"the task's registry proxy: {error}")
        except TimeoutError:
            row.decision, row.rule = "failed", "deadline"
            text = f"the task's registry proxy: not done within {self._bounds.request_seconds:g} s"
            return refusal(row, request, 504, text)
        except Exception:
            log.exception("registry proxy of sandbox %s: %s %s", self._sandbox, request.method, request.raw_path[:500])
            row.decision, row.rule = "failed", "internal"
            return refusal(row, request, 500, "the task's registry proxy failed")
        except asyncio.CancelledError:  # the client has gone away
            row.decision, row.rule, row.fetched = "failed", "client", meter.fetched
            self._record(row)
            raise

    async def _send(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        response.content_type = answer.content_type
        response.content_length = answer.size
        if answer.notice:
            response.headers["npm-notice"] = answer.notice
            response.headers["Cache-Control"] = "no-store"  # npm drops the notice of what it caches
        response.force_close()
        await response.prepare(request)
        if request.method != "HEAD":
            if answer.held is not None:
                while chunk := answer.held.content.read(CHUNK):
                    await response.write(chunk)
            elif answer.text:
                await response.write(answer.text)
        await response.write_eof()
        return response

    def _count(self, row: Row) -> None:
        """Count a request; past the bound the row says so, and from the second one on it is only counted."""
        self._requests += 1
        if self._requests > self._bounds.requests:
            row.decision, row.rule = "denied", Rule.REQUESTS
            row.recorded = self._requests > self._bounds.requests + 1
            self._beyond += row.recorded

    def _record(self, row: Row) -> None:
        if row.recorded:
            return
        row.recorded = True
        try:
            self._audit(row.record(self._sandbox))
        except Exception:  # whatever a sink raises: nothing may go on unrecorded
            log.exception("the audit log of sandbox %s cannot be written: it gets no more answers", self._sandbox)
            self._broken = True

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            connection = None
            try:
                connection, _ = await loop.sock_accept(self._listener)
                await loop.connect_accepted_socket(self._server, connection)
            except OSError as error:  # no descriptors left, or the client was quicker
                self._free.release()
                if connection is not None:
                    connection.close()
                log.warning("registry proxy of sandbox %s: %s", self._sandbox, error)
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)


def _target(request: web.BaseRequest) -> Target:
    """Raises Denied for what only looks like a question of a package tool."""
    if request.method not in ("GET", "HEAD"):
        raise Denied(Rule.METHOD, f"only GET and HEAD are answered, not {request.method[:20]}", 405)
    if request.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in request.headers:
        raise Denied(Rule.REQUEST, "a question about packages has no body", 400)
    return parse(request.raw_path)
