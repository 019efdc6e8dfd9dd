"""HTTP service of the contract for any engine: routes, error messages, and disconnected callers."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import uvicorn
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    GenerateRequest,
    GenerateResponse,
    PartialResponse,
    ServerHealth,
    SyncTimings,
    UpdateRequest,
)
from trainer.inference.errors import BadRequest, ServerError, Unavailable
from trainer.inference.transport import JoinedProtocol
from trainer.usage import SAMPLE_SECONDS, BackgroundSampler

MAX_BODY = 4 << 20
VERSION_POLL_SECONDS = 0.02


class Engine(Protocol):
    """Interface of an engine. It lives on one event loop; methods raise ServerError with a message for the caller."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def health(self) -> ServerHealth: ...

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Generate one response. Cancelled when the caller disconnects, which frees the request's resources."""
        ...

    async def partial(self, deployment: str, session: str) -> PartialResponse:
        """Tokens so far of the session's running request; none for a session that is not known."""
        ...

    def statuses(self) -> list[DeploymentStatus]: ...

    async def deploy(self, spec: DeploymentSpec) -> DeploymentStatus:
        """Deploy by name, idempotently: an equal spec changes nothing, a different one replaces the old."""
        ...

    async def remove(self, name: str) -> None: ...

    async def pause(self, name: str) -> DeploymentStatus: ...

    async def resume(self, name: str) -> DeploymentStatus: ...

    async def update(self, name: str, version: int | None) -> SyncTimings: ...


def application(engine: Engine, *, sample_seconds: float = SAMPLE_SECONDS) -> Starlette:
    own = BackgroundSampler(seconds=sample_seconds)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await engine.start()
        own.start()
        # Hundreds of thousands of objects stay as long as the process: torch's modules and their like. A full collection
        # walks over all that are not frozen, and requests stand still for that time.
        gc.collect()
        gc.freeze()
        yield
        own.stop()
        await engine.stop()

    async def health(request: Request) -> Response:
        answer = engine.health()
        if own.latest is not None:
            answer = answer.model_copy(update={"usage": [own.latest, *answer.usage]})
        return _json(answer, 200 if answer.ok else 503)

    async def generate(request: Request) -> Response:
        began = time.perf_counter()
        wanted = GenerateRequest.model_validate_json(await _body(request))
        answer = asyncio.ensure_future(engine.generate(wanted))
        caller_left = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait((answer, caller_left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            caller_left.cancel()
            if not answer.done():
                answer.cancel()
        if not answer.done():
            await asyncio.wait((answer,))
            return Response(status_code=499)
        found = answer.result()
        if not found.seconds:  # a router passes on what its engine has said
            found.seconds = round(time.perf_counter() - began, 6)
        return _json(found)

    async def partial(request: Request) -> Response:
        asked = request.query_params
        if not (asked.get("deployment") and asked.get("session")):
            raise BadRequest("say of which request: /partial?deployment=NAME&session=NAME")
        return _json(await engine.partial(asked["deployment"], asked["session"]))

    async def create(request: Request) -> Response:
        return _json(await engine.deploy(DeploymentSpec.model_validate_json(await _body(request))))

    async def listing(request: Request) -> Response:
        return JSONResponse([status.model_dump() for status in engine.statuses()])

    async def delete(request: Request) -> Response:
        await engine.remove(request.path_params["name"])
        return Response(status_code=204)

    async def pause(request: Request) -> Response:
        return _json(await engine.pause(request.path_params["name"]))

    async def resume(request: Request) -> Response:
        return _json(await engine.resume(request.path_params["name"]))

    async def update(request: Request) -> Response:
        wanted = UpdateRequest.model_validate_json(await _body(request) or b"{}")
        return _json(await engine.update(request.path_params["name"], wanted.version))

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/generate", generate, methods=["POST"]),
            Route("/partial", partial),
            Route("/deployments", create, methods=["POST"]),
            Route("/deployments", listing, methods=["GET"]),
            Route("/deployments/{name}", delete, methods=["DELETE"]),
            Route("/deployments/{name}/pause", pause, methods=["POST"]),
            Route("/deployments/{name}/update", update, methods=["POST"]),
            Route("/deployments/{name}/resume", resume, methods=["POST"]),
        ],
        exception_handlers={ServerError: _server_error, ValidationError: _invalid},
        lifespan=lifespan,
    )


async def at_version(request: GenerateRequest, version: Callable[[], int]) -> GenerateRequest:
    """Wait until `version()` satisfies `request`; return the request with the remaining time. Raises Unavailable at its
    deadline.
    """
    end = time.monotonic() + request.timeout_seconds
    while (served := version()) < request.min_version:
        if time.monotonic() >= end:
            raise Unavailable(
                f"deployment {request.deployment!r} serves version {served}, and version {request.min_version} was asked for "
                f"and did not come within {request.timeout_seconds:.3g} s; look at how the engine follows its weight store"
            )
        await asyncio.sleep(VERSION_POLL_SECONDS)
    return request.model_copy(update={"timeout_seconds": max(0.001, end - time.monotonic())})


def serve(engine: Engine, *, host: str, port: int) -> None:
    """Run until a signal; requests in progress then have ten seconds to finish."""
    uvicorn.run(
        application(engine),
        host=host,
        port=port,
        http=JoinedProtocol,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=10,
        timeout_keep_alive=75,  # longer than clients keep theirs, so that none is closed under a request
        backlog=2048,
    )


async def _body(request: Request) -> bytes:
    if int(request.headers.get("content-length") or 0) > MAX_BODY:
        raise BadRequest(f"the body is larger than {MAX_BODY} bytes")
    return await request.body()


def _json(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status, media_type="application/json")


async def _server_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServerError)
    details = {"details": dict(error.details)} if error.details else {}
    return JSONResponse({"error": {"code": error.code, "message": str(error), **details}}, error.status)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "body"
    message = f"{where}: {first['msg']}"
    return JSONResponse({"error": {"code": "bad_request", "message": message}}, 400)
