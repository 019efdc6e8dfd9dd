"""The embedded engine is asked again while it serves: weights that change under it are found in the middle of a step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.inference import models
from tests.trainer.inference.conftest import long_model
from trainer.inference.contract import DeploymentSpec, GenerateRequest
from trainer.inference.embedded.factory import build_weights
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.serving.server import EmbeddedEngine
from trainer.inference.verify_weights import WeightMismatch
from trainer.weights import WeightStore
from trainer.weights.probe import measure_model


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stored", [True, False], ids=["probe of the publisher", "forward pass at the load"])
async def test_weights_that_change_under_the_engine_are_found_while_it_serves(tmp_path: Path, stored: bool) -> None:
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    store = WeightStore(tmp_path / "store", dtype="float32")
    store.publish(0, long_model(0).state_dict(), probe=measure_model(long_model(0), tokenizer=None, dtype="float32"))
    spec = DeploymentSpec(
        name="run-1", policy_dir=str(policy_dir), store=str(store.root) if stored else None, version=0
    )
    engine = EmbeddedEngine(memory=tmp_path / "memory.json", limits=Limits(max_context=512), verify_seconds=0.1)
    await engine.start()
    try:
        assert (await engine.deploy(spec)).proof == "proven"
        deployment = engine._deployments.get("run-1")
        loaded = deployment.well_at
        await until(lambda: deployment.well_at > loaded + 0.2)  # asked again, and well
        request = GenerateRequest(deployment="run-1", prompt_ids=[1, 2, 3], max_tokens=5, timeout_seconds=60.0)
        assert len((await engine.generate(request)).token_ids) == 5 and not deployment.refused
        runner = deployment.runner
        assert runner.decoder is not None
        other = build_weights(runner.decoder.shape, long_model(1).state_dict())
        await asyncio.wrap_future(engine._thread.call(lambda: runner.swap(other, runner.version)))
        await until(lambda: deployment.refused is not None)
        status = engine.statuses()[0]
        assert (status.proof, status.state) == ("differs", "failed") and not engine.health().ok
        assert "does not compute version 0 of 'run-1'" in status.error and "Found while it served" in status.error
        assert "restart that engine" in status.error
        with pytest.raises(WeightMismatch, match="Found while it served"):
            await engine.generate(request)
        await engine.remove("run-1")
        assert (await engine.deploy(spec)).proof == "proven"  # loaded anew, it computes what was published
    finally:
        await engine.stop()
