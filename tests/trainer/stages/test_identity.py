"""The synchronous loop, for real: engine in its own process, sandboxes, grading; and the asynchronous stage beside it."""

from __future__ import annotations

import asyncio

import pytest
import torch

from sandbox.backends.choice import default_backend
from sandbox.tasks.environments import EnvironmentStore
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.learning.metrics import describe
from trainer.rewards import reward_part
from trainer.rewards.parts import base
from trainer.rl.rl_sync import DEPLOYMENT, build_run, procedural_prompts, train
from trainer.rl.stage import run_rl
from trainer.rollouts.episode import RolloutServices
from trainer.toy.preset import toy_sampling
from trainer.types import RewardPart
from trainer.weights import WeightStore

STEPS = 2
CONFIG = small_config(
    steps=STEPS,
    group_size=3,
    sampling=toy_sampling(max_turns=2, max_turn_tokens=48, temperature=1.0),
)


def restless_policy(folder):
    """The base policy's tokenizer and shape with random weights: samples of one prompt differ from one another."""
    policy = policies.load(BASE_POLICY)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.05 if parameter.ndim > 1 else 1.0))
    policies.save(policy, folder)
    return folder


async def synchronous(root, policy_dir):
    """Groups, metrics and version digests of the synchronous loop."""
    backend = default_backend()
    store = WeightStore(root / "weights", dtype="float32")
    steps = []
    with EmbeddedServer(root / "engine") as server, InferenceAdmin(server.url) as admin:
        spec = DeploymentSpec(name=DEPLOYMENT, policy_dir=str(policy_dir), store=str(store.root), follow=True)
        await asyncio.to_thread(admin.deploy, spec)

        async def update_engine(version):
            await asyncio.to_thread(admin.update, DEPLOYMENT, version)

        async def on_step(step):
            steps.append(step)

        async with HttpInferenceClient(server.url) as client:
            services = RolloutServices(
                client=client,
                renderer=policies.load(policy_dir).renderer,
                backend=backend,
                environments=EnvironmentStore(root / "environments"),
                deployment=DEPLOYMENT,
                slots=asyncio.Semaphore(8),
            )
            run = build_run(
                policy_dir=policy_dir,
                config=CONFIG,
                seed=0,
                store=store,
                services=services,
                update_engine=update_engine,
            )
            try:
                await train(run, procedural_prompts(0), on_step=on_step)
            finally:
                await backend.close()
    return steps, run, store


@pytest.fixture
def spread_rewards(monkeypatch):
    """A part that differs between rollouts, so that each step has a gradient whatever the policy solves."""
    monkeypatch.setattr(base, "REGISTRY", dict(base.REGISTRY))

    @reward_part("spread")
    def spread(trajectory, config):
        written = [t for s in trajectory.segments for t, m in zip(s.tokens, s.loss_mask, strict=True) if m]
        return RewardPart(name="spread", value=sum(written) % 101 / 101)


@pytest.mark.usefixtures("spread_rewards")
async def test_the_asynchronous_stage_at_lag_zero_is_the_synchronous_loop(tmp_path):
    policy_dir = restless_policy(tmp_path / "policy")
    steps, run, store = await synchronous(tmp_path / "sync", policy_dir)

    # The synchronous loop itself: on-policy groups with verdicts, versions that follow the steps.
    assert [step.step for step in steps] == [1, 2]
    assert run.lost == []
    for step in steps:
        assert len(step.groups) == CONFIG.groups_per_step
        for group in step.groups:
            assert group.oldest_version == group.dispatched_version == step.step - 1
            assert len(group.rewards) == CONFIG.group_size
        assert step.metrics["staleness/max"] == 0.0
        assert step.metrics["optim/grad_norm"] > 0
        # Sampler (embedded engine) and trainer (transformers) agree at lag 0 in float32.
        assert step.metrics["mismatch/k3_mean"] <= 1e-6
        for name in step.metrics:
            describe(name)

    # The same groups through the asynchronous stage.
    sink = MemorySink()
    asynchronous = WeightStore(tmp_path / "async" / "weights", dtype="float32")
    result = run_rl(
        policy_dir=policy_dir,
        config=CONFIG,
        seed=0,
        source=ListSource([group for step in steps for group in step.groups], CONFIG.groups_per_step),
        sink=sink,
        store=asynchronous,
        checkpoints=CheckpointStore(tmp_path / "async" / "checkpoints", keep=1),
    )
    assert result.outcome == "completed"
    for step in steps:
        for name in ("optim/loss", "optim/grad_norm", "policy/entropy", "mismatch/k3_mean", "reward/mean"):
            assert sink.values[step.step].get(name) == step.metrics.get(name), name
    for version in range(STEPS + 1):
        mine, theirs = asynchronous.load(version), store.load(version)
        assert mine.digest == theirs.digest
        assert all(torch.equal(mine.state[name], theirs.state[name]) for name in theirs.state)
