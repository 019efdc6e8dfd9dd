"""Clients of the inference contract over HTTP: `HttpInferenceClient` for rollouts, `InferenceAdmin` for control."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
import httpx
from pydantic import TypeAdapter, ValidationError

from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    EngineContextExceeded,
    GenerateRequest,
    GenerateResponse,
    InferenceError,
    InferenceRefused,
    PartialResponse,
    ServerHealth,
    SyncTimings,
)
from trainer.inference.errors import ContextExceeded

RETRIED = {429, 502, 503}
"""Retryable status codes: queue full, proxy without server, server stopping, starting or paused."""
REFUSED = {400, 404, 405, 422}
MAX_BACKOFF = 1.0
_STATUSES = TypeAdapter(list[DeploymentStatus])
_JSON = {"content-type": "application/json"}


class Connections:
    """Persistent connections to one server, one per concurrent request, for the path of every token.

    httpx spends more than a millisecond of CPU time per request, more than everything else that a caller does before
    the first token; this client spends a sixth of it. Callers see httpx's answers and errors either way.
    """

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, body: str, timeout: httpx.Timeout) -> httpx.Response:
        """Send a POST request. Raises httpx.TransportError."""
        return await self._request("POST", path, timeout, data=body.encode(), headers=_JSON)

    async def get(self, path: str, query: Mapping[str, str], timeout: httpx.Timeout) -> httpx.Response:
        """Send a GET request. Raises httpx.TransportError."""
        return await self._request("GET", path, timeout, params=query)

    async def _request(self, method: str, path: str, timeout: httpx.Timeout, **content: Any) -> httpx.Response:
        url = f"{self._base_url}{path}"
        bounds = aiohttp.ClientTimeout(total=timeout.read, sock_connect=timeout.connect)
        try:
            async with self._open().request(method, url, timeout=bounds, allow_redirects=False, **content) as answer:
                received = await answer.read()
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"{url}: its time has passed") from error
        except (aiohttp.ClientError, OSError) as error:
            raise httpx.NetworkError(f"{type(error).__name__}: {error}") from error
        found = httpx.Response(answer.status, content=received)
        if not found.is_success:
            found.request = httpx.Request(method, url)  # for the words about the failure
        return found

    @asynccontextmanager
    async def stream(self, path: str, body: str, *, connect: float) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a POST request and read its answer as it comes; leaving the block early closes the connection. `connect`
        seconds bound the connecting, the caller the rest. Raises httpx.TransportError, also inside the block."""
        url, bounds = f"{self._base_url}{path}", aiohttp.ClientTimeout(total=None, sock_connect=connect)
        try:
            async with self._open().post(
                url, data=body.encode(), headers=_JSON, timeout=bounds, allow_redirects=False
            ) as answer:
                yield answer
        except (aiohttp.ClientError, OSError) as error:
            raise httpx.NetworkError(f"{type(error).__name__}: {error}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:  # it belongs to the loop that asks first
            secure = httpx.create_ssl_context() if self._base_url.startswith("https") else True
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=secure, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class HttpInferenceClient:
    """Generates over HTTP and retries through server restarts until the request's own deadline.

    Belongs to one event loop; use it as an async context manager, or call `aclose`.
    """

    def __init__(self, base_url: str) -> None:
        self._connections = Connections(base_url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Generate one response. Raises InferenceError when the server refuses the request or the deadline passes."""

        async def attempt(left: float, timeout: httpx.Timeout) -> httpx.Response:
            body = request.model_copy(update={"timeout_seconds": left}).model_dump_json()
            return await self._connections.post("/generate", body, timeout)

        response = await answered(request.timeout_seconds, attempt)
        try:
            return GenerateResponse.model_validate_json(response.content)
        except ValidationError as error:
            raise InferenceError(f"the server's answer is not of the contract: {error.errors()[0]['msg']}") from error

    async def partial(self, deployment: str, session: str, *, timeout: float) -> list[int]:
        """Tokens so far of the session's running request, asked for once. Raises InferenceError, or InferenceRefused from a
        server that cannot tell.
        """
        bounds = httpx.Timeout(timeout, connect=timeout)
        try:
            response = await self._connections.get("/partial", {"deployment": deployment, "session": session}, bounds)
        except httpx.TransportError as error:
            raise InferenceError(f"{type(error).__name__}: {error}") from error
        if not response.is_success:
            raise _failure(response)
        try:
            return PartialResponse.model_validate_json(response.content).token_ids
        except ValidationError as error:
            raise InferenceRefused(f"the server's answer is not of the contract: {error.errors()[0]['msg']}") from error


async def answered(
    seconds: float, attempt: Callable[[float, httpx.Timeout], Awaitable[httpx.Response]]
) -> httpx.Response:
    """Call `attempt(seconds left, timeout)` until it succeeds or `seconds` have passed."""
    deadline = time.monotonic() + seconds
    attempts = 0
    while True:
        left = max(deadline - time.monotonic(), 0.001)
        attempts += 1
        try:
            response = await attempt(left, httpx.Timeout(left + 5.0, connect=min(left, 5.0)))
        except httpx.TransportError as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if response.is_success:
                return response
            problem = _problem(response)
            if response.status_code not in RETRIED:
                raise _failure(response)
        pause = min(MAX_BACKOFF, 0.05 * 2 ** min(attempts, 5)) * random.uniform(0.5, 1.0)
        if time.monotonic() + pause >= deadline:
            raise InferenceError(f"no answer within {seconds:.3g} s after {attempts} attempts; last: {problem}")
        await asyncio.sleep(pause)


class InferenceAdmin:
    """Deployments and health, for synchronous callers. Raises InferenceError with the server's message.

    A first update compiles and loads; the default `timeout` (seconds) suffices for that on a busy machine.
    """

    def __init__(self, base_url: str, *, timeout: float = 180.0) -> None:
        self._http = httpx.Client(base_url=base_url, timeout=timeout, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def health(self) -> ServerHealth:
        """Health of the server; an unhealthy one reports its problem."""
        answer = self._call("GET", "/health", unwell=True)
        try:
            return ServerHealth.model_validate(answer)
        except ValidationError as error:
            raise InferenceRefused(
                f"what answers at {self._http.base_url} does not speak the inference contract: is another kind of server there?"
            ) from error

    def deploy(self, spec: DeploymentSpec) -> DeploymentStatus:
        """Idempotent; returns once the weights are loaded (or at once when it follows an empty store)."""
        return DeploymentStatus.model_validate(self._call("POST", "/deployments", spec.model_dump()))

    def deployments(self) -> list[DeploymentStatus]:
        return _STATUSES.validate_python(self._call("GET", "/deployments"))

    def remove(self, name: str) -> None:
        self._call("DELETE", f"/deployments/{name}")

    def pause(self, name: str) -> DeploymentStatus:
        return DeploymentStatus.model_validate(self._call("POST", f"/deployments/{name}/pause"))

    def resume(self, name: str) -> DeploymentStatus:
        return DeploymentStatus.model_validate(self._call("POST", f"/deployments/{name}/resume"))

    def update(self, name: str, version: int | None = None) -> SyncTimings:
        return SyncTimings.model_validate(self._call("POST", f"/deployments/{name}/update", {"version": version}))

    def _call(self, method: str, path: str, body: Any = None, *, unwell: bool = False) -> Any:
        try:
            response = self._http.request(method, path, json=body)
        except httpx.TransportError as error:
            address = self._http.base_url
            raise InferenceError(f"the inference server at {address} does not answer ({error}); is it up?") from error
        if not response.is_success and not (unwell and response.status_code == 503):
            raise _failure(response)
        try:
            return response.json() if response.content else None
        except json.JSONDecodeError as error:
            raise InferenceRefused(_problem(response)) from error


def _failure(response: httpx.Response) -> InferenceError:
    kind = InferenceRefused if response.status_code in REFUSED else InferenceError
    if _code(response) == ContextExceeded.code:
        kind = EngineContextExceeded
    return kind(_problem(response), code=_code(response), details=_details(response))


def _code(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["code"])
    except (json.JSONDecodeError, KeyError, TypeError):
        return ""


def _details(response: httpx.Response) -> dict[str, int]:
    try:
        return {str(name): int(number) for name, number in response.json()["error"]["details"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _problem(response: httpx.Response) -> str:
    try:
        error = response.json()["error"]
        return f"{error['code']}: {error['message']}"
    except (json.JSONDecodeError, KeyError, TypeError):
        return (
            f"HTTP {response.status_code} from {response.request.url}, not in the words of the inference contract: "
            "is another kind of server there?"
        )
