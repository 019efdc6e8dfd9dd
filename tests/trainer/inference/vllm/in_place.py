"""What a vLLM server must hold to: log-probabilities of the library, and weights in place that are those of a fresh load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch
from transformers import PreTrainedModel

from tests.trainer.inference import models
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec, GenerateRequest, GenerateResponse
from trainer.inference.embedded.serving.process import ServerProcess
from trainer.policy.names import checkpoint_state
from trainer.weights import WeightStore

PROMPT = list(range(40, 90))
TOLERANCE = 1e-3


def check(policy: PreTrainedModel, request: GenerateRequest, answer: GenerateResponse, start: int, end: int) -> None:
    expected = models.logprobs(policy, request.prompt_ids, answer.token_ids[:end], request.temperature)[start:end]
    assert (expected - torch.tensor(answer.logprobs[start:end])).abs().max() < TOLERANCE


async def in_place_equals_fresh(url: str, policy: PreTrainedModel, policy_dir: Path, tmp_path: Path) -> None:
    """k steps that are overwritten in place, and the last version loaded whole, give the same bits."""
    arguments = ("--servers", url, "--turn-seconds", "1", "--poll-seconds", "0.1")
    store = WeightStore(tmp_path / "store", dtype="float32")
    store.publish(0, checkpoint_state(policy, policy.state_dict()))
    asked = {"deployment": "run", "prompt_ids": PROMPT, "max_tokens": 24, "temperature": 0.8, "timeout_seconds": 400.0}
    wanted = [GenerateRequest.model_validate(asked | {"seed": seed}) for seed in range(3)]
    spec = DeploymentSpec(name="run", policy_dir=str(policy_dir), store=str(store.root), version=0)

    async def ask() -> list[GenerateResponse]:
        async with HttpInferenceClient(server.url) as client:
            return [await client.generate(request) for request in wanted]  # one at a time: sums depend on the batch

    with (
        ServerProcess("trainer.inference.vllm.server", tmp_path / "data", arguments=arguments) as server,
        InferenceAdmin(server.url) as admin,
    ):
        await asyncio.to_thread(admin.deploy, spec)
        for request, answer in zip(wanted, await ask(), strict=True):
            check(policy, request, answer, 0, 24)
        for version in range(1, 4):
            store.publish(version, checkpoint_state(policy, models.nudged(policy, version).state_dict()))
            timings = await asyncio.to_thread(admin.update, "run", version)
            print(timings.model_dump())
            assert timings.patched, (tmp_path / "data" / "inference.log").read_text()
            answers = await ask()
            for request, answer in zip(wanted, answers, strict=True):
                assert [span.version for span in answer.spans] == [version]
                check(policy, request, answer, 0, 24)
        await asyncio.to_thread(admin.remove, "run")
    fresh = tmp_path / "fresh"
    with ServerProcess("trainer.inference.vllm.server", fresh, arguments=arguments) as server:
        with InferenceAdmin(server.url) as admin:
            pinned = spec.model_copy(update={"version": 3})
            await asyncio.to_thread(admin.deploy, pinned)
            again = await ask()
            assert [a.token_ids for a in again] == [a.token_ids for a in answers]
            assert [a.logprobs for a in again] == [a.logprobs for a in answers]
            held = next(d for d in admin.deployments() if d.name == "run").last_sync
            assert held is not None and not held.patched
