"""The vLLM adapter up to its edge: a local server answers in the shapes that vLLM 0.32 was seen to send."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from trainer.inference.contract import GenerateRequest, InferenceError
from trainer.inference.vllm import VllmClient, parse_response
from trainer.weights import WeightStore


class Recorded:
    """Remembers what it was asked; answers in vLLM's shapes."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.version = "default"
        self.spans: list[dict[str, Any]] | None = [{"version": "default", "start": 0, "end": 1}]
        self.loaded: dict[str, torch.Tensor] = {}
        self.fail_update = False
        self.busy_answers = 0

    def app(self) -> Starlette:
        async def weight_info(request: Request) -> JSONResponse:
            return JSONResponse({"weight_version": self.version})

        async def generate(request: Request) -> JSONResponse:
            body = await request.json()
            self.seen.append(("generate", body))
            if self.busy_answers:
                self.busy_answers -= 1
                return JSONResponse({"error": {"code": "busy", "message": "try later"}}, 503)
            choice: dict[str, Any] = {
                "index": 0,
                "token_ids": [11, 12, 2],
                "logprobs": {"content": [{"token": f"token_id:{t}", "logprob": -t / 10} for t in (11, 12, 2)]},
                "finish_reason": "stop",
            }
            if self.spans is not None:
                choice["weight_versions"] = self.spans
            usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
            return JSONResponse({"request_id": "r", "choices": [choice], "usage": usage})

        async def control(request: Request) -> JSONResponse:
            name = request.url.path
            body = await request.json() if await request.body() else dict(request.query_params)
            self.seen.append((name, body))
            if name == "/collective_rpc":
                if self.fail_update:
                    return JSONResponse({"detail": "no such file"}, 500)
                path = Path(body["kwargs"]["weights_path"]) / "model.safetensors"
                self.loaded = safetensors.torch.load_file(path)
            if name == "/update_weight_version":
                self.version = body["new_version"]
            return JSONResponse({"success": True})

        names = ("/pause", "/resume", "/collective_rpc", "/update_weight_version")
        routes = [Route("/weight_info", weight_info), Route("/inference/v1/generate", generate, methods=["POST"])]
        return Starlette(routes=[*routes, *(Route(name, control, methods=["POST"]) for name in names)])


@pytest.fixture
async def recorded() -> AsyncIterator[tuple[Recorded, VllmClient]]:
    server = Recorded()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    runner = uvicorn.Server(uvicorn.Config(server.app(), log_level="warning"))
    serving = asyncio.create_task(runner.serve(sockets=[listener]))
    async with VllmClient(f"http://127.0.0.1:{port}", model="policy", first_version=7) as client:
        yield server, client
    runner.should_exit = True
    await serving
    listener.close()


REQUEST = GenerateRequest(
    prompt_ids=[1, 2, 3], max_tokens=9, temperature=0.8, stop_ids=[2], seed=4, timeout_seconds=5, session="s"
)


async def test_request_and_response_mapping(recorded: tuple[Recorded, VllmClient]) -> None:
    server, client = recorded
    server.spans = [{"version": "default", "start": 0, "end": 1}, {"version": "8", "start": 1, "end": 3}]
    answer = await client.generate(REQUEST)
    assert server.seen == [
        (
            "generate",
            {
                "model": "policy",
                "token_ids": [1, 2, 3],
                "sampling_params": {
                    "max_tokens": 9,
                    "temperature": 0.8,
                    "stop_token_ids": [2],
                    "ignore_eos": True,
                    "logprobs": 0,
                    "detokenize": False,
                    "seed": 4,
                },
                "cache_salt": "weights-7",
                "stream": False,
            },
        )
    ]
    assert answer.token_ids == [11, 12, 2] and answer.logprobs == [-1.1, -1.2, -0.2]
    assert [(s.version, s.start, s.end) for s in answer.spans] == [(7, 0, 1), (8, 1, 3)]
    assert answer.finish_reason == "stop" and answer.reused_tokens == 2


async def test_without_spans_the_older_version_counts(recorded: tuple[Recorded, VllmClient]) -> None:
    server, client = recorded
    server.spans, server.version, server.busy_answers = None, "12", 1
    answer = await client.generate(REQUEST)
    assert [(s.version, s.start, s.end) for s in answer.spans] == [(12, 0, 3)]
    assert len(server.seen) == 2  # refused once, tried again


async def test_update_goes_through_a_full_checkpoint(recorded: tuple[Recorded, VllmClient], tmp_path: Path) -> None:
    server, client = recorded
    store = WeightStore(tmp_path / "store", dtype="float32")
    shared = torch.randn(4, 3)
    for version in range(2):
        store.publish(version, {"model.embed_tokens.weight": shared + version, "lm_head.weight": shared + version})
    timings = await client.update(store, None, scratch=tmp_path / "scratch")
    assert timings.version == 1 and timings.bytes > 0 and timings.apply > 0
    assert [name for name, _ in server.seen] == ["/pause", "/collective_rpc", "/update_weight_version", "/resume"]
    assert server.seen[0][1] == {"mode": "keep"} and server.version == "1"
    assert torch.equal(server.loaded["model.embed_tokens.weight"], shared + 1)
    assert not list((tmp_path / "scratch").iterdir())


async def test_a_failed_update_still_resumes(recorded: tuple[Recorded, VllmClient], tmp_path: Path) -> None:
    server, client = recorded
    server.fail_update = True
    store = WeightStore(tmp_path / "store")
    store.publish(0, {"w": torch.zeros(2)})
    with pytest.raises(InferenceError, match=r"/collective_rpc with 500.*DEV_MODE"):
        await client.update(store, 0, scratch=tmp_path / "scratch")
    assert server.seen[-1][0] == "/resume" and server.version == "default"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": [{"token_ids": [1], "logprobs": None, "finish_reason": "stop"}]},
        {"choices": [{"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "stop"}]},
        {"choices": [{"token_ids": [1], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "error"}]},
    ],
)
def test_other_shapes_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InferenceError, match="vLLM"):
        parse_response(body, before=0, first=0)
