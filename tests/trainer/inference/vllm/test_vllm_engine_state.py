"""What a vLLM server computes with, as it is known in front of it. (Loads and proofs: `test_vllm.py`, over HTTP.)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.trainer.inference import models
from tests.trainer.inference.conftest import long_model, vllm_double
from trainer.inference.contract import DeploymentSpec, GenerateRequest, SyncTimings
from trainer.inference.vllm.api import VllmApi
from trainer.inference.vllm.deployment import Deployment
from trainer.inference.vllm.engine_state import EngineState


def engine_state(url: str, scratch: Path, told: list[bool]) -> EngineState:
    """`told` gets one more entry whenever requests are told to look again."""
    return EngineState(VllmApi(url), scratch, verify_seconds=300.0, changed=lambda: told.append(True))


def test_preemptions_are_of_the_deployment_that_holds_the_server(tmp_path: Path) -> None:
    """Counted from the second look on; a server that began anew counts from 0."""
    made = engine_state("http://127.0.0.1:9", tmp_path, [])
    held = Deployment(DeploymentSpec(name="held", policy_dir=str(tmp_path)))
    made.count_preemptions(40)
    made.count_preemptions(41)  # nobody holds it
    made.deployment = held
    for total in (43, None, 43, 50, 2):
        made.count_preemptions(total)
    assert held.preemptions == 2 + 7 + 2
    assert held.status().preemptions == 11


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[tuple[EngineState, Deployment, list[bool]]]:
    """A server that holds a deployment."""
    policy = models.save(long_model(0), tmp_path / "policy")
    with vllm_double(policy, tmp_path / "vllm") as url:
        told: list[bool] = []
        made = engine_state(url, tmp_path / "scratch", told)
        deployment = Deployment(DeploymentSpec(name="x", policy_dir=str(policy)))
        await deployment.refresh(None)
        assert await made.watch(), "it holds nothing of ours yet"
        assert made.misfit(deployment) == "" and not made.serves(deployment)
        await made.load(deployment, SyncTimings(version=0))
        yield made, deployment, told
        await made.api.aclose()


async def test_what_was_loaded_is_served_and_not_loaded_again(
    held: tuple[EngineState, Deployment, list[bool]],
) -> None:
    made, deployment, told = held
    assert made.serves(deployment) and deployment.proof == "proven" and told
    request = GenerateRequest(deployment="x", prompt_ids=[1, 2], max_tokens=3, seed=1)
    answer = await made.generate(request, until=asyncio.get_running_loop().time() + 30)
    await made.wait_verified()
    assert len(answer.token_ids) == 3 and {span.version for span in answer.spans} == {0}
    last = deployment.last_sync
    await made.load(deployment, SyncTimings(version=0))
    assert deployment.last_sync is last
    deployment.paused = True
    assert not made.serves(deployment)


@pytest.mark.parametrize("known", [True, False])
async def test_after_a_fault_nobody_is_admitted_until_it_is_seen_to_hold_its_weights(
    held: tuple[EngineState, Deployment, list[bool]], known: bool
) -> None:
    """Where another answer than a failure said so, what it holds is not known: it gets the weights again."""
    made, deployment, told = held
    made.lost(known=known)
    assert not made.serves(deployment) and made.deployment is deployment
    told.clear()
    assert not await made.watch(), "it is the process that was given them"
    assert made.serves(deployment) is known and bool(told) is known
    if not known:
        assert made.deployment is None and "started again" in made.updater.reason
        await made.load(deployment, SyncTimings(version=0))
        assert made.serves(deployment)
