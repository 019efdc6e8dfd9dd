"""Against a real vLLM server: log-probabilities, stop tokens, swaps in flight, turns.

`make test-vllm` starts one (vLLM's CPU build). To use another:

VLLM_SERVER_DEV_MODE=1 vllm serve policies/base --dtype float32 --enable-scale-out --logprobs-mode processed_logprobs
--worker-extension-cls trainer.inference.vllm.extension.WeightPatches
VLLM_URL=http://127.0.0.1:8000 python -m pytest -m slow tests/trainer/inference/vllm/test_vllm_real.py
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.trainer.inference.vllm.in_place import PROMPT, check, in_place_equals_fresh
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec, GenerateRequest
from trainer.inference.embedded.serving.process import ServerProcess
from trainer.weights import WeightStore

URL = os.environ.get("VLLM_URL", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not URL, reason="VLLM_URL names no vLLM server"),
]


@pytest.fixture(scope="module")
def policy_dir() -> Path:
    """The folder that the server was started with; it must be seen here, too."""
    return Path(httpx.get(f"{URL}/v1/models", trust_env=False).json()["data"][0]["root"]).resolve()


def model(policy_dir: Path, version: int) -> PreTrainedModel:
    """The policy, moved a little further with each version."""
    made = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32).eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(version)
        for weight in made.parameters():
            weight.add_(0.02 * version * weight.std() * torch.randn_like(weight))
    return made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """For one test: a second one in front of the same vLLM would take it away from the first."""
    arguments = ("--servers", URL, "--turn-seconds", "1")
    with ServerProcess("trainer.inference.vllm.server", tmp_path / "data", arguments=arguments) as made:
        yield made


async def test_everything_that_a_run_needs(server: ServerProcess, policy_dir: Path, tmp_path: Path) -> None:
    store = WeightStore(tmp_path / "store", dtype="float32")
    for version in range(2):
        store.publish(version, model(policy_dir, version).state_dict())

    def ask(deployment: str, **fields: object) -> GenerateRequest:
        wanted = {"deployment": deployment, "prompt_ids": PROMPT, "max_tokens": 32, "temperature": 0.8, "seed": 1}
        wanted["timeout_seconds"] = 400.0  # the CPU build is slow on a busy machine
        return GenerateRequest.model_validate(wanted | fields)

    with InferenceAdmin(server.url) as admin:
        async with HttpInferenceClient(server.url) as client:
            await asyncio.to_thread(
                admin.deploy,
                DeploymentSpec(name="run-1", policy_dir=str(policy_dir), store=str(store.root), follow=True),
            )
            request = ask("run-1")
            first = await client.generate(request)
            assert [(s.version, s.start, s.end) for s in first.spans] == [(1, 0, 32)]
            assert first.finish_reason == "length"
            check(model(policy_dir, 1), request, first, 0, 32)

            stop = first.token_ids[5]
            stopped = await client.generate(ask("run-1", stop_ids=[stop]))
            assert stopped.finish_reason == "stop" and stopped.token_ids[-1] == stop
            assert stopped.token_ids == first.token_ids[: first.token_ids.index(stop) + 1]

            spec = DeploymentSpec(name="eval-1", policy_dir=str(policy_dir), store=str(store.root), version=0)
            await asyncio.to_thread(admin.deploy, spec)
            both = [ask(("run-1", "eval-1")[n % 2], seed=n) for n in range(8)]
            for number, answer in enumerate(await asyncio.gather(*map(client.generate, both))):
                assert [s.version for s in answer.spans] == [1 - number % 2]
                check(model(policy_dir, 1 - number % 2), both[number], answer, 0, 32)
            await asyncio.to_thread(admin.remove, "eval-1")

            await client.generate(ask("run-1", max_tokens=1))  # its turn again
            long = ask("run-1", max_tokens=900)
            running = asyncio.create_task(client.generate(long))
            while not any(d.running for d in await asyncio.to_thread(admin.deployments)):
                await asyncio.sleep(0.01)
            await asyncio.to_thread(store.publish, 2, model(policy_dir, 2).state_dict())
            answer = await running
            assert [s.version for s in answer.spans] in ([1], [1, 2], [2]) and answer.spans[-1].end == 900
            for span in answer.spans[:1]:
                check(model(policy_dir, span.version), long, answer, 0, span.end)
            while (await asyncio.to_thread(admin.deployments))[0].version != 2:  # on a busy machine after the answer
                await asyncio.sleep(0.05)
            request = ask("run-1", seed=7)
            after = await client.generate(request)
            assert [s.version for s in after.spans] == [2]
            check(model(policy_dir, 2), request, after, 0, 32)
            status = (await asyncio.to_thread(admin.deployments))[0]
            assert status.version == 2 and status.last_sync is not None
            print(status.last_sync.model_dump())


async def test_steps_in_place_are_what_a_fresh_load_is(policy_dir: Path, tmp_path: Path) -> None:
    await in_place_equals_fresh(URL, model(policy_dir, 0), policy_dir, tmp_path)
