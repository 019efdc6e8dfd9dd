"""HTTP server of the inference contract: `python -m trainer.inference.embedded.server --host H --port P`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
import uvicorn
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainer.inference.contract import (
    DeploymentSpec,
    GenerateRequest,
    GenerateResponse,
    ServerHealth,
    UpdateRequest,
)
from trainer.inference.embedded.deployments import Deployments
from trainer.inference.embedded.errors import BadRequest, ServerError
from trainer.inference.embedded.jobs import Job
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.thread import EngineThread

log = logging.getLogger(__name__)
MAX_BODY = 4 << 20


def build(*, memory: Path, limits: Limits, poll_seconds: float = 0.2) -> Starlette:
    """The application. `memory` is the JSON file that lists its deployments across restarts."""
    engine = EngineThread()
    deployments = Deployments(engine, limits, memory)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        engine.start()
        deployments.restore()
        follower = asyncio.create_task(deployments.follow(poll_seconds))
        yield
        follower.cancel()
        await asyncio.to_thread(engine.stop)

    async def health(request: Request) -> Response:
        busy, speed = engine.load()
        statuses = [d.status() for d in deployments.all.values()]
        answer = ServerHealth(
            ok=engine.alive, engine="embedded", busy_share=busy, tokens_per_second=speed, deployments=statuses
        )
        return _json(answer, 200 if answer.ok else 503)

    async def generate(request: Request) -> Response:
        wanted = GenerateRequest.model_validate_json(await _body(request))
        deployment = deployments.get(wanted.deployment)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[GenerateResponse | ServerError] = loop.create_future()

        def settle(result: GenerateResponse | ServerError) -> None:
            if not answer.done():
                answer.set_result(result)

        def deliver(result: GenerateResponse | ServerError) -> None:
            loop.call_soon_threadsafe(settle, result)

        job = Job(wanted, time.monotonic() + wanted.timeout_seconds, deliver)
        engine.submit(deployment.runner, job)
        caller_left = asyncio.ensure_future(request.receive())
        try:
            either: set[asyncio.Future[Any]] = {answer, caller_left}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            caller_left.cancel()
            job.cancelled = not answer.done()
        if not answer.done():
            return Response(status_code=499)
        result = answer.result()
        if isinstance(result, ServerError):
            raise result
        return _json(result)

    async def create(request: Request) -> Response:
        spec = DeploymentSpec.model_validate_json(await _body(request))
        return _json((await deployments.create(spec)).status())

    async def listing(request: Request) -> Response:
        return JSONResponse([d.status().model_dump() for d in deployments.all.values()])

    async def delete(request: Request) -> Response:
        await deployments.delete(request.path_params["name"])
        return Response(status_code=204)

    async def pause(request: Request) -> Response:
        return _json((await deployments.pause(request.path_params["name"])).status())

    async def resume(request: Request) -> Response:
        return _json((await deployments.resume(request.path_params["name"])).status())

    async def update(request: Request) -> Response:
        wanted = UpdateRequest.model_validate_json(await _body(request) or b"{}")
        return _json(await deployments.update(request.path_params["name"], wanted.version))

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


def main() -> None:
    parser = argparse.ArgumentParser(description="Embedded CPU inference server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENCOMPOSER_DATA", ".data")))
    parser.add_argument("--max-queue", type=int, default=Limits.max_queue, help="waiting requests a deployment")
    parser.add_argument("--max-context", type=int, default=Limits.max_context, help="tokens of one sequence")
    parser.add_argument("--max-slots", type=int, default=Limits.max_slots, help="sequences in the cache a deployment")
    parser.add_argument("--kv-mib", type=int, default=1024, help="memory of one deployment's KV cache")
    parser.add_argument("--poll-seconds", type=float, default=0.2, help="how often weight stores are looked at")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    sys.setswitchinterval(0.001)  # the engine thread asks for the interpreter at every operation
    torch.set_num_threads(int(os.environ.get("OPENCOMPOSER_TORCH_THREADS") or os.environ.get("OMP_NUM_THREADS") or 1))
    limits = Limits(
        max_queue=arguments.max_queue,
        max_context=arguments.max_context,
        max_slots=arguments.max_slots,
        kv_bytes=arguments.kv_mib << 20,
    )
    app = build(
        memory=arguments.data / "run" / "inference-deployments.json",
        limits=limits,
        poll_seconds=arguments.poll_seconds,
    )
    uvicorn.run(
        app,
        host=arguments.host,
        port=arguments.port,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=10,
        backlog=2048,
    )


if __name__ == "__main__":
    main()
