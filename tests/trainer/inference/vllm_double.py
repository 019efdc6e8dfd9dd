"""A server with vLLM 0.32's interfaces and real tokens: the embedded engine generates behind vLLM's HTTP shapes.

Two workers share its weights (`vllm_workers.py`) and run the product's own extension.

What a real vLLM does and this does not: CUDA, its own numerics, prefix caching. Shapes and effects of each call are
those that a vLLM 0.32 was seen to have (docs/design/inference.md says which checks were made against a real one).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from safetensors.torch import load_file
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.trainer.inference.vllm_workers import Worker, gathered
from trainer.inference.contract import DeploymentSpec, GenerateRequest
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.serving.server import EmbeddedEngine
from trainer.inference.errors import BadRequest, ServerError
from trainer.routed_experts import Experts
from trainer.weights import WeightStore

NAME = "policy"


def npy(experts: Experts) -> str:
    """As vLLM sends them: in the smallest integers that hold them."""
    file = io.BytesIO()
    np.save(file, experts.astype(np.uint8))
    return base64.b64encode(file.getvalue()).decode()


class Double:
    """One served model; reloaded weights become versions of a store of its own."""

    def __init__(self, model: Path, data: Path, *, max_context: int, bare: bool = False, experts: bool = False) -> None:
        self.model = model
        self.bare = bare
        self.experts = experts
        self.lies = False
        """Says that it took weights, and goes on with those that it has."""
        self.context = max_context
        self.store = WeightStore(data / "double", dtype="float32")
        self.labels = ["default"]
        self.engine = EmbeddedEngine(
            memory=data / "double.json", limits=Limits(max_context=max_context), poll_seconds=3600.0
        )

    async def start(self) -> None:
        await self.engine.start()
        state = load_file(self.model / "model.safetensors")
        state = {name: tensor.float() for name, tensor in state.items()}
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        tied = json.loads((self.model / "config.json").read_text()).get("tie_word_embeddings")
        self.tied = {"lm_head.weight": "model.embed_tokens.weight"} if tied else {}
        shapes |= {alias: shapes[name] for alias, name in self.tied.items()}
        self.workers = [Worker(shapes, rank=rank, world=2) for rank in range(2)]
        self.store.publish(0, state)
        await self.engine.deploy(
            DeploymentSpec(name=NAME, policy_dir=str(self.model), store=str(self.store.root), version=0)
        )

    async def take(self, state: dict[str, torch.Tensor]) -> None:
        if not self.lies:
            version = (self.store.latest() or 0) + 1
            self.store.publish(version, {n: t for n, t in state.items() if n not in self.tied}, anchor=True)
            await self.engine.update(NAME, version)
        self.labels.append("unlabelled")

    async def on_workers(self, method: str, arguments: dict[str, str]) -> list[Any]:
        if method == "reload_weights":
            folder = Path(arguments["weights_path"])
            await self.take({n: t for f in sorted(folder.glob("*.safetensors")) for n, t in load_file(f).items()})
            return [None]
        if self.bare or not method.startswith("opencomposer_"):
            raise AttributeError(f"'Worker' object has no attribute '{method}'")
        answers = [getattr(worker, method)(**arguments) for worker in self.workers]
        if method != "opencomposer_stage" and not any("error" in answer for answer in answers):
            await self.take(dict(gathered(self.workers)))
        return answers

    async def events(self, wanted: GenerateRequest) -> AsyncIterator[bytes]:
        """A stream with one token an event. The version spans come with the last one."""
        tokens: list[int] = []
        spans: list[dict[str, Any]] = []
        reason: str | None = None
        while reason is None:
            one = {"prompt_ids": [*wanted.prompt_ids, *tokens], "max_tokens": 1, "session": f"stream-{id(tokens)}"}
            seed = None if wanted.seed is None else wanted.seed + 7919 * len(tokens)
            made = await self.engine.generate(wanted.model_copy(update={**one, "seed": seed}))
            tokens += made.token_ids
            reason = made.finish_reason if made.finish_reason == "stop" or len(tokens) >= wanted.max_tokens else None
            version = self.span(made.spans[0].version, len(tokens) - 1, len(tokens))
            if spans and spans[-1]["version"] == version["version"]:
                spans[-1]["end"] = version["end"]
            else:
                spans.append(version)
            choice = {
                "index": 0,
                "token_ids": made.token_ids,
                "logprobs": {"content": [{"token": f"token_id:{t}", "logprob": p, "top_logprobs": []}
                                         for t, p in zip(made.token_ids, made.logprobs, strict=True)]},
                "finish_reason": reason,
                "weight_versions": spans if reason else None,
            }  # fmt: skip
            yield b"data: " + json.dumps({"request_id": "r", "choices": [choice]}).encode() + b"\n\n"
        usage = {"prompt_tokens": len(wanted.prompt_ids), "prompt_tokens_details": {"cached_tokens": 0}}
        yield b"data: " + json.dumps({"request_id": "r", "choices": [], "usage": usage}).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    def span(self, version: int, start: int, end: int) -> dict[str, Any]:
        return {"version": self.labels[-1 if self.lies else version], "start": start, "end": end}

    def app(self) -> Starlette:
        async def models(request: Request) -> Response:
            card = {"id": NAME, "object": "model", "root": str(self.model), "max_model_len": self.context}
            return JSONResponse({"object": "list", "data": [card]})

        async def server_info(request: Request) -> Response:
            assert request.query_params["config_format"] == "json"
            aux = {"enable_return_routed_experts": self.experts, "max_bytes": None}
            return JSONResponse({"vllm_config": {"aux_output_config": aux}, "vllm_env": {}, "system_env": {}})

        async def weight_info(request: Request) -> Response:
            return JSONResponse({"weight_version": self.labels[-1]})

        async def generate(request: Request) -> Response:
            body = await request.json()
            assert body["model"] == NAME
            if len(body["cache_salt"]) > 128 or set(body["cache_salt"]) & set("@/\\\0"):
                return JSONResponse({"error": {"message": "Parameter 'cache_salt' must ...", "code": 400}}, 400)
            sampling = body["sampling_params"]
            assert sampling["ignore_eos"] and sampling["logprobs"] == 0
            wanted = GenerateRequest(
                deployment=NAME,
                prompt_ids=body["token_ids"],
                max_tokens=sampling["max_tokens"],
                temperature=sampling["temperature"],
                stop_ids=sampling["stop_token_ids"],
                seed=sampling.get("seed"),
                experts_from=0 if self.experts else None,
                timeout_seconds=3600.0,
            )
            if body["stream"]:
                return StreamingResponse(self.events(wanted), media_type="text/event-stream")
            answer = asyncio.ensure_future(self.engine.generate(wanted))
            left = asyncio.ensure_future(request.receive())
            await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
            left.cancel()
            if not answer.done():  # vLLM, too, gives up what nobody waits for
                answer.cancel()
                return Response(status_code=499)
            try:
                made = answer.result()
            except BadRequest as error:
                return JSONResponse({"error": {"message": str(error), "code": 400}}, 400)
            except ServerError as error:
                return JSONResponse({"error": {"message": str(error), "code": 500}}, 500)
            choice = {
                "index": 0,
                "token_ids": made.token_ids,
                "logprobs": {
                    "content": [
                        {"token": f"token_id:{t}", "logprob": p, "top_logprobs": []}
                        for t, p in zip(made.token_ids, made.logprobs, strict=True)
                    ]
                },
                "finish_reason": made.finish_reason,
                "routed_experts": npy(made.experts.unpack()) if made.experts else None,
                "weight_versions": [self.span(s.version, s.start, s.end) for s in made.spans],
            }
            usage = {
                "prompt_tokens": len(wanted.prompt_ids),
                "prompt_tokens_details": {"cached_tokens": made.reused_tokens},
            }
            return JSONResponse({"request_id": "r", "choices": [choice], "usage": usage})

        async def pause(request: Request) -> Response:
            assert request.query_params["mode"] == "keep"
            await self.engine.pause(NAME)
            return JSONResponse({"status": "paused"})

        async def resume(request: Request) -> Response:
            await self.engine.resume(NAME)
            return JSONResponse({"status": "resumed"})

        async def collective_rpc(request: Request) -> Response:
            body = await request.json()
            try:
                answers = await self.on_workers(body["method"], body["kwargs"])
            except Exception as error:  # noqa: BLE001 - vLLM answers a worker's exception with 500
                return JSONResponse({"detail": str(error)}, 500)
            return JSONResponse({"results": answers})

        async def update_weight_version(request: Request) -> Response:
            self.labels[-1] = (await request.json())["new_version"]
            return JSONResponse({"success": True})

        async def metrics(request: Request) -> Response:
            labels, share = 'engine="0",model_name="policy"', self.engine.statuses()[0].cache_share or 0.0
            lines = (
                "# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.",
                "# TYPE vllm:kv_cache_usage_perc gauge",
                f"vllm:kv_cache_usage_perc{{{labels}}} {share}",
                f"vllm:num_requests_running{{{labels}}} 0.0",
                f"vllm:num_preemptions_total{{{labels}}} 0.0",
            )
            return Response("\n".join(lines) + "\n", media_type="text/plain")

        async def tokens(request: Request) -> Response:
            """Not vLLM's: how many tokens were generated, so that a test can wait for some."""
            return JSONResponse(self.engine.statuses()[0].generated_tokens)

        async def spoil(request: Request) -> Response:
            """Not vLLM's: one word of a worker is changed behind its back."""
            with torch.no_grad():
                next(self.workers[1].model.parameters()).view(-1)[0] += 1
            return JSONResponse({})

        async def lie(request: Request) -> Response:
            """Not vLLM's: from now on it keeps the weights that it has, whatever it is given."""
            self.lies = True
            return JSONResponse({})

        async def drift(request: Request) -> Response:
            """Not vLLM's: it computes with other weights from now on, and nobody was told."""
            label, noise = self.labels[-1], torch.Generator().manual_seed(1)
            state = dict(gathered(self.workers))
            await self.take({n: t + 0.5 * t.std() * torch.randn(t.shape, generator=noise) for n, t in state.items()})
            self.labels[-1] = label
            return JSONResponse({})

        post = ["POST"]
        return Starlette(
            routes=[
                Route("/v1/models", models),
                Route("/server_info", server_info),
                Route("/weight_info", weight_info),
                Route("/inference/v1/generate", generate, methods=post),
                Route("/pause", pause, methods=post),
                Route("/resume", resume, methods=post),
                Route("/collective_rpc", collective_rpc, methods=post),
                Route("/update_weight_version", update_weight_version, methods=post),
                Route("/metrics", metrics),
                Route("/tokens", tokens),
                Route("/spoil", spoil, methods=post),
                Route("/lie", lie, methods=post),
                Route("/drift", drift, methods=post),
            ]
        )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-context", type=int, default=4096)
    parser.add_argument("--bare", action="store_true", help="started without our extension")
    parser.add_argument("--enable-return-routed-experts", action="store_true", dest="experts")
    options = parser.parse_args()
    double = Double(
        options.model, options.data, max_context=options.max_context, bare=options.bare, experts=options.experts
    )
    await double.start()
    await uvicorn.Server(uvicorn.Config(double.app(), host="127.0.0.1", port=options.port, log_level="warning")).serve()


if __name__ == "__main__":
    asyncio.run(main())
