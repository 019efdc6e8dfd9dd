"""A policy with experts learns through the embedded engine, its routing repeated: sample, learn, publish, sample."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.algorithms import group_streams
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig
from trainer.inference.contract import DeploymentSpec, GenerateRequest
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.serving.server import EmbeddedEngine
from trainer.rl.backend import SingleProcess
from trainer.rl.stage import RLStage, run_rl
from trainer.rollouts.choices import Choices
from trainer.router_replay.families import routers
from trainer.toy.preset import toy_sampling
from trainer.types import Segment, TrainGroup
from trainer.weights import WeightStore

STEPS, GROUPS, ROLLOUTS = 3, 2, 6
CONFIG = small_config(
    steps=STEPS,
    groups_per_step=GROUPS,
    group_size=ROLLOUTS,
    sampling=toy_sampling(temperature=0.9, top_k=60),
    checkpoint=CheckpointConfig(every_steps=1, keep=1),
)


def policy_with_experts(folder: Path) -> Path:
    base = policies.load(BASE_POLICY)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = Qwen3MoeConfig(
            vocab_size=base.model.config.vocab_size,
            hidden_size=32,
            intermediate_size=32,
            moe_intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            num_experts=8,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            max_position_embeddings=128,
            initializer_range=0.2,
        )
        model = Qwen3MoeForCausalLM(config).float()
    return policies.save(policies.Policy(model, base.tokenizer, base.renderer, folder), folder)


async def rollout(engine: EmbeddedEngine, prompt: list[int], seed: int, top_k: int) -> Segment:
    """Two turns with an observation between them, as an episode makes them."""
    tokens, logprobs, mask, versions, choices = list(prompt), [0.0] * len(prompt), [0] * len(prompt), [], Choices()
    versions += [-1] * len(prompt)
    choices.read(len(prompt))
    for turn in range(2):
        answer = await engine.generate(
            GenerateRequest(
                prompt_ids=tokens,
                max_tokens=6,
                temperature=0.9,
                top_k=top_k,
                seed=seed * 2 + turn,
                session=f"s{seed}",
                experts_from=choices.experts_known,
            )
        )
        choices.wrote(answer, len(tokens))
        tokens, logprobs = tokens + answer.token_ids, logprobs + answer.logprobs
        mask, versions = mask + [1] * 6, versions + [answer.spans[0].version] * 6
        if turn == 0:
            tokens, logprobs, mask, versions = (
                [*tokens, 7, 8],
                logprobs + [0.0] * 2,
                mask + [0] * 2,
                versions + [-1] * 2,
            )
            choices.read(2)
    return Segment(
        tokens=tokens,
        logprobs=logprobs,
        loss_mask=mask,
        versions=versions,
        experts=choices.routed(),
        support=choices.support(),
    )


async def group(engine: EmbeddedEngine, step: int, index: int, top_k: int) -> TrainGroup:
    prompt = [11 + index, 12, 13 + step]
    seeds = [1000 * step + 100 * index + i for i in range(ROLLOUTS)]
    segments = await asyncio.gather(*(rollout(engine, prompt, seed, top_k) for seed in seeds))
    rewards = [sum(token % 2 for token, m in zip(s.tokens, s.loss_mask, strict=True) if m) / 12 for s in segments]
    return TrainGroup(
        group_id=f"{step}-{index}",
        prompt_index=step * GROUPS + index,
        dispatched_version=step,
        oldest_version=step,
        rewards=rewards,
        samples=group_streams(rewards, [[segment] for segment in segments], CONFIG),
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("top_k", [60, 0], ids=["masked", "drafted"])
async def test_a_policy_with_experts_learns_through_the_engine(tmp_path: Path, top_k: int) -> None:
    """Requests with a sampling mask get no drafts; all others do, from a head that fits none of the weights."""
    folder = policy_with_experts(tmp_path / "policy")
    MultiToken(32, 8).save(folder)
    config = CONFIG.model_copy(update={"sampling": CONFIG.sampling.model_copy(update={"top_k": top_k})})
    store = WeightStore(tmp_path / "weights", dtype="float32")
    checkpoints = CheckpointStore(tmp_path / "checkpoints", keep=1)
    backend = SingleProcess(policy_dir=folder, config=config, seed=0, store=store, checkpoints=checkpoints)
    stage = RLStage(backend, config, seed=0)
    sink = MemorySink()
    before = [router.module.weight.detach().clone() for router in routers(stage.policy.model)]
    engine = EmbeddedEngine(
        memory=tmp_path / "deployments.json", limits=Limits(max_context=128, max_num_seqs=16, speculate=2)
    )
    await engine.start()
    try:
        stage.publish(sink)
        stage.backend.wait()
        await engine.deploy(DeploymentSpec(name="policy", policy_dir=str(folder), store=str(store.root)))
        for step in range(STEPS):
            groups = [await group(engine, step, index, top_k) for index in range(GROUPS)]
            assert {(s.experts is None, s.support is None) for g in groups for s in g.samples} == {(False, not top_k)}
            values = stage.train(groups)
            # The engine and the trainer agree to the last bits, so the experts do, too, and all of them are repeated.
            assert values["mismatch/k3_mean"] < 1e-9 and values["mismatch/abs_max"] < 1e-4
            assert values["routing/differs"] == values["routing/replaced"] == 0.0
            assert values["routing/replayed"] > 0.9 and values["optim/grad_norm"] > 0
            stage.publish(sink)
            stage.backend.wait()
            assert (await engine.update("policy", None)).version == step + 1
        (status,) = engine.statuses()
        assert (status.draft_tokens > 0) == (not top_k)
        stage.save(sink)
    finally:
        await engine.stop()
    after = [router.module.weight for router in routers(stage.policy.model)]
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert "model.layers.0.mlp.experts.7.down_proj.weight" in store.load().state  # as in a checkpoint
    backend = SingleProcess(policy_dir=folder, config=config, seed=0, store=store, checkpoints=checkpoints)
    resumed = RLStage(backend, config, seed=0)
    assert resumed.step == STEPS
    mine, theirs = resumed.policy.model.state_dict(), stage.policy.model.state_dict()
    assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.items())


@pytest.mark.parametrize("wanted", [True, False])
def test_an_engine_that_names_no_experts_is_an_error_once_and_a_share_of_nothing_at_each_step(
    tmp_path: Path, wanted: bool
) -> None:
    """vLLM names none unless it was started to; without a word the trainer would learn from its own routing."""
    folder = policy_with_experts(tmp_path / "policy")
    config = small_config(steps=2, sampling=toy_sampling(enable_router_replay=wanted))
    groups = [make_group(policies.load(folder).model, index) for index in range(4)]
    sink = MemorySink()
    run_rl(
        policy_dir=folder,
        config=config,
        seed=0,
        source=ListSource(groups, config.groups_per_step),
        sink=sink,
        store=WeightStore(tmp_path / "weights", dtype="float32"),
        checkpoints=CheckpointStore(tmp_path / "checkpoints", keep=1),
    )
    told = [(level, message) for level, message in sink.events if "router_replay" in message]
    if wanted:
        ((level, message),) = told
        assert level == "error" and "--enable-return-routed-experts" in message
        assert [sink.values[step]["routing/replayed"] for step in (1, 2)] == [0.0, 0.0]
    else:
        assert not told and all("routing/replayed" not in values for values in sink.values.values())
