"""A group: G attempts at one prompt, run concurrently, turned into what the trainer consumes.

An attempt lost to infrastructure is run again, `infra_retries` times where the table of outcomes
(`sandbox/grading/outcomes.py`) allows it; only verdicts of executed tests become rewards.
The group is accepted only when all G attempts have a verdict: a baseline over fewer rollouts would be noisier for
exactly the prompts that strain the infrastructure most. A group that is not accepted is reported with its causes.
The exception is a configured one: `straggler = trim` ends attempts that take far longer than the rest of their group
(`stragglers.py`), and the baseline is then that of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from sandbox.backends.base import Backend
from sandbox.backends.snapshots import SnapshotStore
from sandbox.grading.report import Verdict
from sandbox.harness.types import StopReason
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec
from trainer.config import RLConfig
from trainer.inference.contract import InferenceClient
from trainer.learning.algorithms import group_streams
from trainer.learning.feedback import hints_of
from trainer.learning.metrics import OUTCOMES
from trainer.rollouts.episode import EpisodeSettings, Renderer, RolloutServices, Watch, run_episode
from trainer.rollouts.interruption import Interruption
from trainer.rollouts.partial import Partials
from trainer.rollouts.snapshots import Origin
from trainer.rollouts.stragglers import cut_short, cut_stragglers
from trainer.rollouts.types import TrainGroup, Trajectory

SANDBOXES_AT_ONCE = 32
"""Default bound on the episodes of one process that hold a sandbox."""

Episode = Callable[[int, str, int], Awaitable[Trajectory]]
"""One attempt: (sample, session, seed) → its trajectory, whatever became of it."""

LIMIT_STOPS = frozenset({StopReason.TURN_LIMIT, StopReason.TOKEN_LIMIT, StopReason.TIME_LIMIT})


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What became of a group."""

    trajectories: tuple[Trajectory, ...]
    """The last attempt of each sample, in sample order; those with verdict `infra_error` have no reward."""
    train_group: TrainGroup | None
    """None when a sample has no verdict after its retries."""
    infra_errors: tuple[str, ...]
    """Cause of every attempt that was lost, retried ones included."""


async def run_group(
    *,
    task: TaskSpec,
    group_id: str,
    prompt_index: int,
    config: RLConfig,
    client: InferenceClient,
    renderer: Renderer,
    backend: Backend,
    environments: EnvironmentStore,
    deployment: str,
    seed: int,
    dispatched_version: int | None = None,
    slots: asyncio.Semaphore | None = None,
    on_trajectory: Callable[[Trajectory], Awaitable[None]] | None = None,
    snapshots: SnapshotStore | None = None,
    origin: Origin | None = None,
    interruption: Interruption | None = None,
    partials: Partials | None = None,
    watch: Watch | None = None,
) -> GroupResult:
    """Run `config.group_size` attempts at `task`.

    `seed` fixes the sampling of every attempt. `on_trajectory` is awaited for each trajectory as it ends, lost
    attempts included. `slots` is shared by all groups of a process; without it the group has its own bound.
    `dispatched_version` is the version at admission; without it, the oldest version that generated. `snapshots` keeps
    what `config.harness.snapshot_every` asks for. With an `origin` every attempt goes on from there (`fork.py`);
    with `partials` an attempt that was lost with its worker goes on from its last snapshot (`partial.py`). `watch` is
    told of each turn.
    """
    services = RolloutServices(
        client=client,
        renderer=renderer,
        backend=backend,
        environments=environments,
        deployment=deployment,
        slots=slots or asyncio.Semaphore(SANDBOXES_AT_ONCE),
        snapshots=snapshots,
        partials=partials if config.asynchrony.resume_rollouts else None,
        watch=watch,
    )
    settings = EpisodeSettings(config.sampling, config.harness, config.reward, interruption)

    begun: set[int] = set()

    async def episode(sample: int, session_id: str, seed: int) -> Trajectory:
        first = sample not in begun  # what this process loses itself begins again: its snapshot may be the cause
        begun.add(sample)
        return await run_episode(
            task=task,
            sample=sample,
            session_id=session_id,
            seed=seed,
            settings=settings,
            services=services,
            origin=origin,
            resume=first,
        )

    result = await run_attempts(
        episode,
        group_id=group_id,
        prompt_index=prompt_index,
        config=config,
        seed=seed,
        dispatched_version=dispatched_version,
        on_trajectory=on_trajectory,
    )
    if result.train_group is not None:
        result = replace(result, train_group=result.train_group.model_copy(update={"labels": labels_of(task)}))
    return (
        await asyncio.to_thread(_with_hints, result, config, renderer, seed) if config.feedback.coefficient else result
    )


def labels_of(task: TaskSpec) -> dict[str, str]:
    """By which the metrics tell rewards apart."""
    labels = {"source": str(task.source)}
    if isinstance(task.environment, BuiltEnvironment):
        labels["environment"] = task.environment.digest.removeprefix("sha256:")[:12]
    return labels


def _with_hints(result: GroupResult, config: RLConfig, renderer: Renderer, seed: int) -> GroupResult:
    """The group with the hinted turns of textual feedback; a rule may wait for a language model."""
    if result.train_group is None:
        return result
    hints = hints_of(result.trajectories, config, renderer, seed=seed)
    return replace(result, train_group=result.train_group.model_copy(update={"hints": hints}))


async def run_attempts(
    episode: Episode,
    *,
    group_id: str,
    prompt_index: int,
    config: RLConfig,
    seed: int,
    dispatched_version: int | None = None,
    on_trajectory: Callable[[Trajectory], Awaitable[None]] | None = None,
) -> GroupResult:
    """`config.group_size` episodes at the same time, each run again while the infrastructure loses it."""
    causes: list[str] = []

    async def attempt(sample: int) -> Trajectory:
        for attempt_index in range(config.infra_retries + 1):
            session = f"{group_id}-{sample}-{attempt_index}"
            trajectory = await episode(sample, session, episode_seed(seed, prompt_index, sample))
            if on_trajectory is not None:
                await on_trajectory(trajectory)
            if trajectory.verdict is not Verdict.INFRA_ERROR:
                return trajectory
            causes.append(trajectory.report.cause)
            if not trajectory.report.retry:
                break
        return trajectory

    async with asyncio.TaskGroup() as running:
        tasks = [running.create_task(attempt(sample)) for sample in range(config.group_size)]
        if config.asynchrony.straggler == "trim":
            await cut_stragglers(tasks, config.asynchrony)
    ended = {sample: attempt_.result() for sample, attempt_ in enumerate(tasks) if not attempt_.cancelled()}
    cut = [cut_short(next(iter(ended.values())), n) for n in range(config.group_size) if n not in ended]
    if on_trajectory is not None:
        for trajectory in cut:
            await on_trajectory(trajectory)
    trajectories = tuple(sorted([*ended.values(), *cut], key=lambda trajectory: trajectory.sample))
    scored = [trajectory for trajectory in trajectories if trajectory.reward is not None]
    group = (
        build_train_group(
            scored,
            group_id=group_id,
            prompt_index=prompt_index,
            config=config,
            dispatched_version=dispatched_version,
            lost_attempts=len(causes),
            cut=len(cut),
        )
        if len(scored) + len(cut) == config.group_size
        else None
    )
    return GroupResult(trajectories, group, tuple(causes))


def episode_seed(seed: int, prompt_index: int, sample: int) -> int:
    """A seed of its own for each attempt, the same whenever and wherever the attempt is run."""
    return (seed * 1_000_003 + prompt_index * 8191 + sample * 131 + 7) % (1 << 31)


def build_train_group(
    trajectories: Sequence[Trajectory],
    *,
    group_id: str,
    prompt_index: int,
    config: RLConfig,
    dispatched_version: int | None = None,
    lost_attempts: int = 0,
    cut: int = 0,
) -> TrainGroup:
    """The trainer's view of a group whose trajectories all have rewards (else ValueError)."""
    rewards = [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
    if len(rewards) != len(trajectories):
        raise ValueError(f"group {group_id}: {len(trajectories) - len(rewards)} trajectories have no reward")
    oldest = min((t.oldest_version for t in trajectories if t.oldest_version >= 0), default=-1)
    return TrainGroup(
        group_id=group_id,
        prompt_index=prompt_index,
        dispatched_version=oldest if dispatched_version is None else dispatched_version,
        oldest_version=oldest,
        newest_version=max((t.newest_version for t in trajectories), default=-1),
        rewards=rewards,
        samples=group_streams(rewards, [trajectory.segments for trajectory in trajectories], config),
        stats=group_stats(trajectories, lost_attempts=lost_attempts, cut=cut),
    )


def group_stats(trajectories: Sequence[Trajectory], *, lost_attempts: int = 0, cut: int = 0) -> dict[str, float]:
    """Means over the group's rollouts under the names of `learning/metrics.py`."""
    n = len(trajectories)
    passed = [trajectory.verdict is Verdict.PASSED for trajectory in trajectories]
    sums: dict[str, float] = {
        "verdict/passed": float(sum(passed)),
        "tokens/policy": float(sum(t.policy_tokens for t in trajectories)),
        "tokens/total": float(sum(t.total_tokens for t in trajectories)),
        "turns/mean": float(sum(not turn.summary for t in trajectories for turn in t.turns)),
        "segments/mean": float(sum(len(t.segments) for t in trajectories)),
        "calls/mean": float(sum(len(turn.calls) for t in trajectories for turn in t.turns)),
        "staleness/versions": float(sum(t.version_count for t in trajectories)),
        "truncated": float(sum(t.stop_reason in LIMIT_STOPS for t in trajectories)),
    }

    def add(name: str, value: float) -> None:
        sums[name] = sums.get(name, 0.0) + value

    for trajectory in trajectories:
        add(f"stop/{trajectory.stop_reason}", 1.0)
        for part in trajectory.reward_parts:
            add(f"reward/part/{part.name}", part.value * part.weight)
        for phase, name in (("total", "episode"), ("generate", "generate"), ("tools", "tools"), ("grade", "grade")):
            add(f"time/{name}", trajectory.seconds.get(phase, 0.0))
        for turn in trajectory.turns:
            for result in turn.results:
                if result.error is not None:
                    add(f"tool_error/{result.error.kind}", 1.0)
    means = {name: value / n for name, value in sums.items()}
    means.update(_lengths(trajectories, passed))
    means["groups/solved_none"] = float(not any(passed))
    means["groups/solved_all"] = float(all(passed))
    means["groups/solved_some"] = float(any(passed) and not all(passed))
    means["infra/retries"] = float(lost_attempts)
    means["rollouts/cut"] = cut / (n + cut)
    return means


def _lengths(trajectories: Sequence[Trajectory], passed: Sequence[bool]) -> dict[str, float]:
    """Mean lengths by outcome; an outcome that no rollout of the group had has none."""
    out: dict[str, float] = {}
    for outcome in OUTCOMES:
        some = [t for t, good in zip(trajectories, passed, strict=True) if good == (outcome == "passed")]
        if some:
            out[f"tokens/policy/{outcome}"] = sum(t.policy_tokens for t in some) / len(some)
            out[f"tokens/total/{outcome}"] = sum(t.total_tokens for t in some) / len(some)
            out[f"turns/{outcome}"] = sum(not turn.summary for t in some for turn in t.turns) / len(some)
    return out
