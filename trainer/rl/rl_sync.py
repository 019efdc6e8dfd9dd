"""The whole algorithm in one readable loop: sample, run, grade, compare, learn, publish, repeat. No database, no queue.

    for each step:
        prompts   = the next P tasks                              `collect`: each prompt is used once
        rollouts  = G episodes of each prompt, in sandboxes       `in_sandboxes`: tokens in, tokens out
        rewards   = hidden tests in second, clean sandboxes       1 or 0, plus configured parts
        advantage = R - mean of the prompt's G rewards            `with_advantages`: no std, no length normaliser
        loss      = -(1/Z) Σ w · advantage · log π                `learn`: policy tokens only, one optimiser step
        weights   → store → engine                                `publish`: the next step samples from them

The engine waits while the trainer learns, and the trainer waits while the engine samples, so no rollout is ever stale.
`stage.py` is the asynchronous form; given the groups of this loop it computes the same losses bit for bit.

    python -m trainer.rl.rl_sync --policy policies/base --data DIR [--steps 40] [--seed 0]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from sandbox.backends.capacity import sandboxes_at_once
from sandbox.backends.choice import default_backend
from sandbox.grading.verdict.outcomes import Loss
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.procedural import generate
from sandbox.tasks.spec import TaskSpec
from trainer import policy as policies
from trainer.algorithms import advantage_streams, advantages_of
from trainer.config import RLConfig, RunConfig
from trainer.defaults import Facts, derive
from trainer.defaults.facts import read_model
from trainer.errors import StageError
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.learning.distillation import learn_from_hints
from trainer.learning.metrics import batch_metrics
from trainer.learning.step import Learner
from trainer.policy.round_trip import check_template
from trainer.rl.evaluate import EvalReport, evaluate
from trainer.rl.learner import build_learner, build_reference
from trainer.rl.reference import Reference
from trainer.rollouts.episode import RolloutServices
from trainer.rollouts.group import GroupResult, run_group
from trainer.rollouts.turns import EpisodeSettings
from trainer.types import TrainGroup, Trajectory
from trainer.weights import WeightStore
from trainer.weights.probe import measure_model

DEPLOYMENT = "policy"
Play = Callable[[int], Awaitable[GroupResult]]
"""Produces the group of a prompt from the weights that the engine serves."""


@dataclass(frozen=True, slots=True)
class SyncStep:
    """Result of one step: the groups as trained, and metrics."""

    step: int
    groups: tuple[TrainGroup, ...]
    metrics: dict[str, float]


@dataclass(slots=True)
class SyncRun:
    """State and services of the loop."""

    config: RLConfig
    seed: int
    policy: policies.Policy
    learner: Learner
    reference: Reference | None
    store: WeightStore
    services: RolloutServices
    update_engine: Callable[[int], Awaitable[None]]
    """Moves the engine to a published version and waits until it samples from it."""
    version: int = 0
    next_prompt: int = 0
    lost: list[Loss] = field(default_factory=list)
    """Attempts lost to infrastructure."""
    on_trajectory: Callable[[Trajectory], Awaitable[None]] | None = None
    """Called with every rollout as it ends, for monitoring."""


def build_run(
    *,
    policy_dir: Path,
    config: RLConfig,
    seed: int,
    store: WeightStore,
    services: RolloutServices,
    update_engine: Callable[[int], Awaitable[None]],
) -> SyncRun:
    """Load the starting policy and create its optimizer. Raises PolicyUnreadable, TemplateNotExact."""
    policy = policies.load(policy_dir)
    check_template(policy.renderer)
    reference = build_reference(config, policy_dir, store)
    learner = build_learner(policy, config, seed=seed, reference=reference, published=store.format)
    return SyncRun(config, seed, policy, learner, reference, store, services, update_engine)


async def publish(run: SyncRun) -> None:
    """Publish the current weights as version `run.version` to the store and the engine."""
    anchor = run.version % run.config.checkpoint.anchor_every == 0
    probe = measure_model(run.learner.model, tokenizer=run.policy.tokenizer, dtype=run.store.format)
    run.store.publish(run.version, run.learner.weights(), anchor=anchor, probe=probe)
    await run.update_engine(run.version)


async def collect(run: SyncRun, play: Play) -> list[GroupResult]:
    """Collect one on-policy batch: P groups of G graded rollouts, all concurrent. A lost group's prompt is replaced by
    the next."""
    groups: list[GroupResult] = []
    while len(groups) < run.config.groups_per_step:
        missing = run.config.groups_per_step - len(groups)
        if len(run.lost) > 10 * run.config.groups_per_step * run.config.group_size:
            raise StageError(f"{len(run.lost)} attempts were lost to infrastructure; the last: {run.lost[-1]}")
        prompts = range(run.next_prompt, run.next_prompt + missing)
        run.next_prompt += missing
        results = await asyncio.gather(*(play(prompt) for prompt in prompts))
        run.lost += [cause for result in results for cause in result.infra_errors]
        groups += [result for result in results if result.train_group is not None]
    return groups


def in_sandboxes(run: SyncRun, tasks: Callable[[int], TaskSpec]) -> Play:
    """Play G episodes of `tasks(prompt)`, each in a sandbox and graded in a second one."""

    async def play(prompt: int) -> GroupResult:
        return await run_group(
            task=tasks(prompt),
            group_id=f"{run.seed}-{prompt}",
            prompt_index=prompt,
            config=run.config,
            client=run.services.client,
            renderer=run.services.renderer,
            backend=run.services.backend,
            environments=run.services.environments,
            deployment=run.services.deployment,
            slots=run.services.slots,
            seed=run.seed,
            dispatched_version=run.version,
            on_trajectory=run.on_trajectory,
        )

    return play


def with_advantages(rollouts: Sequence[Trajectory], group: TrainGroup, config: RLConfig) -> TrainGroup:
    """The group as the learner reads it: per-token streams, with each rollout's advantage on all of its policy tokens."""
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    advantages = advantages_of(rewards, config.objective)  # R - mean(R), unless another algorithm is configured
    samples = advantage_streams(advantages, [rollout.segments for rollout in rollouts], config)
    return group.model_copy(update={"rewards": rewards, "samples": samples})


async def one_step(run: SyncRun, play: Play) -> SyncStep:
    """Sample, compare, learn and publish once."""
    began = time.perf_counter()
    results = await collect(run, play)
    groups = [
        with_advantages(result.scored, result.train_group, run.config) for result in results if result.train_group
    ]
    return await learn(run, groups, waited=time.perf_counter() - began)


async def learn(run: SyncRun, groups: Sequence[TrainGroup], *, waited: float = 0.0) -> SyncStep:
    """Take one optimiser step over the groups, and publish the new version. `waited`: seconds spent on sampling."""
    began = time.perf_counter()
    if run.reference is not None:
        run.reference.follow(run.version)
    values = batch_metrics(groups, trained_version=run.version)
    values |= learn_from_hints(run.learner.model, groups, run.config)
    values |= run.learner.train(groups, step=run.version + 1)  # loss, gradients, update
    trained = time.perf_counter()
    run.version += 1
    await publish(run)
    ended = time.perf_counter()
    values |= {
        "time/wait_for_batch": waited,
        "time/train": trained - began,
        "time/publish": ended - trained,
        "time/step": waited + ended - began,
        "idle/trainer": waited / (waited + ended - began),
    }
    return SyncStep(run.version, tuple(groups), values)


async def train(
    run: SyncRun,
    tasks: Callable[[int], TaskSpec] | None = None,
    *,
    on_step: Callable[[SyncStep], Awaitable[None]] | None = None,
    play: Play | None = None,
) -> None:
    """Run the loop. `tasks(i)` is the i-th prompt of the run; `play` replaces sandboxed episodes."""
    if play is None:
        assert tasks is not None, "prompts, or something that plays them"
        play = in_sandboxes(run, tasks)
    await publish(run)
    while run.version < run.config.steps:
        step = await one_step(run, play)
        if on_step is not None:
            await on_step(step)


async def held_out(run: SyncRun, tasks: Sequence[TaskSpec], *, samples: int) -> EvalReport:
    """Evaluate the weights in service at the sampling temperature of training."""
    settings = EpisodeSettings(run.config.sampling, run.config.harness, run.config.reward)
    return await evaluate(
        tasks=tasks,
        samples=samples,
        settings=settings,
        services=run.services,
        seed=run.seed,
        name=f"eval-{run.version}",
    )


def procedural_prompts(seed: int) -> Callable[[int], TaskSpec]:
    """Return the function from i to the i-th training prompt; seeds share no prompt."""
    return lambda index: generate(seed * 1_000_000 + index, "train")


def procedural_held_out(count: int) -> list[TaskSpec]:
    """The first `count` held-out tasks, equal for every seed."""
    return [generate(index, "held-out") for index in range(count)]


def _config(arguments: argparse.Namespace) -> RLConfig:
    """Defaults that fit the policy: the toy's, unless its size is given."""
    size = arguments.parameters
    model = read_model(arguments.policy, parameters=size or 0, toy=size is None)
    stage = derive(RunConfig(name="rl-sync", stage=RLConfig(steps=arguments.steps)), Facts(model)).config.stage
    assert isinstance(stage, RLConfig)
    return stage


async def main(arguments: argparse.Namespace) -> None:
    """Train with the embedded engine in a child process; print one JSON line per step and one at the end."""
    config = _config(arguments)
    data = arguments.data
    store = WeightStore(data / "weights", dtype="float32")
    backend = default_backend()

    def say(values: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()

    with EmbeddedServer(data / "engine") as server, InferenceAdmin(server.url) as admin:
        spec = DeploymentSpec(name=DEPLOYMENT, policy_dir=str(arguments.policy), store=str(store.root), follow=True)
        await asyncio.to_thread(admin.deploy, spec)

        async def update_engine(version: int) -> None:
            await asyncio.to_thread(admin.update, DEPLOYMENT, version)

        async def on_step(step: SyncStep) -> None:
            say({"step": step.step, **{name: round(value, 4) for name, value in step.metrics.items()}})

        async with HttpInferenceClient(server.url) as client:
            services = RolloutServices(
                client=client,
                renderer=policies.load(arguments.policy).renderer,
                backend=backend,
                environments=EnvironmentStore(data / "environments"),
                deployment=DEPLOYMENT,
                slots=asyncio.Semaphore(sandboxes_at_once()),
            )
            run = build_run(
                policy_dir=arguments.policy,
                config=config,
                seed=arguments.seed,
                store=store,
                services=services,
                update_engine=update_engine,
            )
            try:
                await publish(run)
                tasks = procedural_held_out(arguments.eval_tasks)
                before = await held_out(run, tasks, samples=config.eval_samples)
                say({"before": before.model_dump(exclude={"solved"})})
                await train(run, procedural_prompts(arguments.seed), on_step=on_step)
                after = await held_out(run, tasks, samples=config.eval_samples)
                say({"after": after.model_dump(exclude={"solved"}), "lost": len(run.lost)})
                policies.save(run.policy, data / "policy", weights=run.learner.weights())
            finally:
                await backend.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Synchronous RL of a small policy, without the product around it")
    parser.add_argument("--policy", type=Path, default=Path("policies/base"))
    parser.add_argument("--data", type=Path, required=True, help="folder for weights, environments and the result")
    parser.add_argument("--steps", type=int, default=RLConfig().steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eval-tasks", type=int, default=RLConfig().eval_tasks)
    parser.add_argument("--parameters", type=int, help="parameters of a policy that is not the toy")
    torch.set_num_threads(1)
    asyncio.run(main(parser.parse_args()))
