"""Context and memory of a deployment: as it asks for them, or refused with what to set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.trainer.inference import models
from trainer.inference.contract import DeploymentSpec, GenerateRequest, LengthLimit
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.serving.server import EmbeddedEngine
from trainer.inference.errors import ContextExceeded, NoMemory

TOKEN = 2 * 2 * 2 * 16 * 4
"""Bytes of one token's keys and values in `models.BASE`."""


def test_a_deployment_has_the_context_and_the_memory_that_it_asks_for(tmp_path: Path) -> None:
    policy = str(models.save(models.make("qwen3"), tmp_path / "policy"))

    async def ask() -> None:
        engine = EmbeddedEngine(memory=tmp_path / "deployments.json", limits=Limits(kv_bytes=64 * TOKEN))
        await engine.start()
        try:
            plain = await engine.deploy(DeploymentSpec(name="plain", policy_dir=policy))
            assert (plain.max_model_len, plain.kv_cache_bytes) == (64, 64 * TOKEN), "what the engine's memory holds"
            wanted = DeploymentSpec(name="long", policy_dir=policy, max_model_len=131_072)
            long = await engine.deploy(wanted)
            assert long.max_model_len == 256, "as far as the policy's positions reach"
            assert long.kv_cache_bytes == 256 * TOKEN, "raised to hold one sequence"
            short = await engine.deploy(wanted.model_copy(update={"max_model_len": 48, "kv_cache_mib": 1}))
            assert (short.max_model_len, short.kv_cache_bytes) == (48, min(1 << 20, 256 * 48 * TOKEN))
            answer = await engine.generate(GenerateRequest(deployment="long", prompt_ids=[1] * 40, max_tokens=50))
            assert len(answer.token_ids) == 8 and answer.length_limit is LengthLimit.ENGINE_CONTEXT
            with pytest.raises(ContextExceeded, match="prompt has 48 tokens, the deployment's context holds 48; raise"):
                await engine.generate(GenerateRequest(deployment="long", prompt_ids=[1] * 48, max_tokens=1))
            assert (engine.health().max_context, engine.health().kv_bytes) == (131_072, 64 * TOKEN)
        finally:
            await engine.stop()

    asyncio.run(ask())


def test_what_the_machine_cannot_hold_is_refused_with_what_to_set(tmp_path: Path) -> None:
    policy = str(models.save(models.make("qwen3"), tmp_path / "policy"))

    async def ask() -> None:
        engine = EmbeddedEngine(memory=tmp_path / "deployments.json", limits=Limits())
        await engine.start()
        try:
            with pytest.raises(NoMemory, match=r"needs 1073741824 MiB .* lower max_context_tokens or kv_cache_mib"):
                await engine.deploy(DeploymentSpec(name="x", policy_dir=policy, kv_cache_mib=1 << 30))
            assert engine.statuses() == []
        finally:
            await engine.stop()

    asyncio.run(ask())


def test_memory_for_less_than_one_sequence_is_refused(tmp_path: Path) -> None:
    config = models.make("qwen3").config
    config.max_position_embeddings = 1 << 14
    model = type(models.make("qwen3"))(config).float()
    policy = str(models.save(model, tmp_path / "policy"))

    async def ask() -> None:
        engine = EmbeddedEngine(memory=tmp_path / "deployments.json", limits=Limits())
        await engine.start()
        try:
            with pytest.raises(
                NoMemory, match=r"16384 tokens takes 8 MiB .* at least 8, or max_context_tokens to at most 2048"
            ):
                await engine.deploy(DeploymentSpec(name="x", policy_dir=policy, kv_cache_mib=1))
        finally:
            await engine.stop()

    asyncio.run(ask())
