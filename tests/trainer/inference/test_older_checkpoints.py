"""An older checkpoint, whose weights are kept as a difference, is served like any other; without its base it is refused."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.trainer.inference import models
from trainer.inference.contract import DeploymentSpec, GenerateRequest
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.serving.server import EmbeddedEngine
from trainer.inference.errors import SyncFailed
from trainer.weights.differences import code

FILE = "model.safetensors"


def older_of(newer: Path) -> tuple[Path, bytes]:
    """A checkpoint before `newer`, as retention leaves it, and the bytes that its weights had."""
    older = Path(shutil.copytree(newer, newer.with_name("older")))
    data = bytearray((older / FILE).read_bytes())
    data[-3] ^= 1
    (older / FILE).write_bytes(data)
    assert code(older / FILE, newer / FILE) is not None
    (older / FILE).unlink()
    return older, bytes(data)


def test_it_is_served_and_refused_once_its_base_is_gone(tmp_path: Path) -> None:
    newer = models.save(models.make("qwen3"), tmp_path / "newer")
    older, data = older_of(newer)
    lost = Path(shutil.copytree(older, tmp_path / "away" / "older"))

    async def ask() -> None:
        engine = EmbeddedEngine(memory=tmp_path / "deployments.json", limits=Limits())
        await engine.start()
        try:
            await engine.deploy(DeploymentSpec(name="older", policy_dir=str(older)))
            answer = await engine.generate(GenerateRequest(deployment="older", prompt_ids=[1, 2], max_tokens=3))
            assert len(answer.token_ids) == 3
            assert (older / FILE).read_bytes() == data
            with pytest.raises(SyncFailed, match="from which it differs, was removed; start from another version"):
                await engine.deploy(DeploymentSpec(name="lost", policy_dir=str(lost)))
        finally:
            await engine.stop()

    asyncio.run(ask())
