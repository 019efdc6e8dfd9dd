"""The contract over HTTP for any engine: routes, errors in words, and callers that leave."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
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
    ServerHealth,
    SyncTimings,
    UpdateRequest,
)
from trainer.inference.errors import BadRequest, ServerError
from trainer.inference.packets import JoinedProtocol

MAX_BODY = 4 << 20


class Engine(Protocol):
    """What serves deployments. Lives on one event loop; methods raise ServerError in words for the caller."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def health(self) -> ServerHealth: ...

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Cancelled when the caller has left: whatever the request occupies is freed."""
        ...

    def statuses(self) -> list[DeploymentStatus]: ...

    async def deploy(self, spec: DeploymentSpec) -> DeploymentStatus:
        """Idempotent by name: an equal spec is left alone, another one replaces it."""
        ...

    async def remove(self, name: str) -> None: ...

    async def pause(self, name: str) -> DeploymentStatus: ...

    async def resume(self, name: str) -> DeploymentStatus: ...

    async def update(self, name: str, version: int | None) -> SyncTimings: ...


def application(engine: Engine) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await engine.start()
        # Hundreds of thousands of objects stay as long as the process: torch's modules and their like. A full collection
        # walks over all that are not frozen, and requests stand still for that time.
        gc.collect()
        gc.freeze()
        yield
        await engine.stop()

    async def health(request: Request) -> Response:
        answer = engine.health()
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


def serve(engine: Engine, *, host: str, port: int) -> None:
    """Runs until a signal; a request in progress has ten seconds to end."""
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
    return JSONResponse({"error": {"code": error.code, "message": str(error)}}, error.status)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "body"
    message = f"{where}: {first['msg']}"
    return JSONResponse({"error": {"code": "bad_request", "message": message}}, 400)
