"""A group: G attempts at one prompt, run concurrently and converted to the trainer's input.

An attempt lost to infrastructure is retried up to `infra_retries` times where the table of outcomes
(`sandbox/grading/verdict/outcomes.py`) allows it. Only verdicts of executed tests become rewards. A group is accepted
only when all G attempts have a verdict: a baseline over fewer rollouts would be noisier for exactly the prompts that
strain the infrastructure most. A rejected group is reported with its causes.

Some attempts may be missing, and the baseline is then that of the others (at least two): attempts that `straggler =
trim` ends because they take far longer than the rest of their group (`stragglers.py`), and graded attempts whose reward
could not be computed (a language model gave no usable grade), or which the store did not take.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from sandbox.backends.base import Backend
from sandbox.backends.capacity import sandboxes_at_once
from sandbox.backends.snapshots import SnapshotStore
from sandbox.grading.verdict.outcomes import Cause, Loss
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.types import StopReason
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec
from trainer.algorithms import group_streams
from trainer.algorithms.textual_feedback import hints_of
from trainer.config import RLConfig
from trainer.inference.contract import InferenceClient
from trainer.learning.metrics import OUTCOMES
from trainer.rollouts.checkpoint import RolloutCheckpoints
from trainer.rollouts.ending import Store
from trainer.rollouts.episode import Renderer, RolloutServices, Watch, run_episode
from trainer.rollouts.interruption import Interruption
from trainer.rollouts.losses import Losses
from trainer.rollouts.open_turn import TurnObserver
from trainer.rollouts.retries import with_retries
from trainer.rollouts.snapshots import Origin
from trainer.rollouts.stragglers import cut_short, cut_stragglers, lost_to
from trainer.rollouts.turns import EpisodeSettings
from trainer.types import TrainGroup, Trajectory

log = logging.getLogger(__name__)

Episode = Callable[[int, str, int], Awaitable[Trajectory]]
"""One attempt: (sample, session, seed) → its trajectory, whatever the outcome."""

LIMIT_STOPS = frozenset({StopReason.TURN_LIMIT, StopReason.TOKEN_LIMIT, StopReason.TIME_LIMIT})


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Result of a group."""

    trajectories: tuple[Trajectory, ...]
    """Last attempt of each sample, in sample order; those with verdict `infra_error` have no reward."""
    train_group: TrainGroup | None
    """None when a sample has no verdict after its retries, or fewer than two have a reward."""
    infra_errors: tuple[Loss, ...]
    """Every lost attempt, including retried ones."""

    @property
    def scored(self) -> tuple[Trajectory, ...]:
        """The rollouts that have a reward."""
        return tuple(trajectory for trajectory in self.trajectories if trajectory.reward is not None)

    @property
    def loss(self) -> Loss:
        """Why a group has no `train_group`: the last loss of a sample that no retry recovered."""
        missing = [t.report for t in self.trajectories if t.verdict is Verdict.INFRA_ERROR and t.report.outcome]
        if missing and missing[-1].outcome:
            return Loss(missing[-1].outcome, missing[-1].cause)
        return self.infra_errors[-1] if self.infra_errors else Loss(Cause.INTERNAL_ERROR, "a rollout has no verdict")


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
    checkpoints: RolloutCheckpoints | None = None,
    watch: Watch | None = None,
    observer: TurnObserver | None = None,
    store: Store | None = None,
    min_version: int = 0,
) -> GroupResult:
    """Run `config.group_size` attempts at `task`.

    `seed` fixes the sampling of every attempt. `on_trajectory` is awaited for each trajectory as it ends, including
    lost attempts. `slots` is shared by all groups of a process; without it the group has its own bound.
    `dispatched_version` is the version at admission; it defaults to the oldest version that generated. `snapshots`
    keeps what `config.harness.snapshot_every` requests. With an `origin` every attempt continues from there
    (`fork.py`). With `checkpoints` an attempt lost with its worker resumes from its last snapshot (`checkpoint.py`).
    `watch` is called after each turn, and `observer` hears of turns before that. `store` stores each trajectory as it
    ends; a failure costs only that rollout. No token is sampled before the engine serves `min_version`.
    """
    services = RolloutServices(
        client=client,
        renderer=renderer,
        backend=backend,
        environments=environments,
        deployment=deployment,
        slots=slots or asyncio.Semaphore(sandboxes_at_once()),
        snapshots=snapshots,
        checkpoints=checkpoints if config.orchestrator.resume_rollouts else None,
        watch=watch,
        observer=observer,
        store=store,
        min_version=min_version,
        min_kept_version=max(0, min_version - config.staleness_limit),
    )
    settings = EpisodeSettings(config.sampling, config.harness, config.reward, interruption)

    begun: set[int] = set()
    losses: dict[int, Losses] = defaultdict(Losses)

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
            losses=losses[sample],
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
        await asyncio.to_thread(_with_hints, result, config, renderer, seed)
        if config.textual_feedback.coefficient
        else result
    )


def labels_of(task: TaskSpec) -> dict[str, str]:
    """Labels by which metrics group rewards."""
    labels = {"source": str(task.source)}
    if isinstance(task.environment, BuiltEnvironment):
        labels["environment"] = task.environment.digest.removeprefix("sha256:")[:12]
    return labels


def _with_hints(result: GroupResult, config: RLConfig, renderer: Renderer, seed: int) -> GroupResult:
    """Add the hinted turns of textual feedback; a rule may wait for a language model."""
    if result.train_group is None:
        return result
    hints = hints_of(result.scored, config, renderer, seed=seed)
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
    """Run `config.group_size` episodes concurrently, and retry each while the infrastructure loses it.

    An episode that raises is lost alone; the others are played to their end.
    """
    causes: list[Loss] = []
    raised: dict[int, Exception] = {}

    async def attempt(sample: int) -> Trajectory | None:
        try:
            return await retried(sample)
        except Exception as error:
            log.exception("group %s: sample %d raised", group_id, sample)
            raised[sample] = error
            causes.append(Loss(Cause.INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
            return None

    def lost_once(trajectory: Trajectory) -> None:
        causes.append(Loss(trajectory.report.outcome or Cause.INTERNAL_ERROR, trajectory.report.cause))

    async def retried(sample: int) -> Trajectory:
        return await with_retries(
            lambda index: episode(sample, f"{group_id}-{sample}-{index}", episode_seed(seed, prompt_index, sample)),
            retries=config.infra_retries,
            on_trajectory=on_trajectory,
            on_loss=lost_once,
        )

    async with asyncio.TaskGroup() as running:
        tasks = [running.create_task(attempt(sample)) for sample in range(config.group_size)]
        if config.orchestrator.straggler_policy == "trim":
            await cut_stragglers(tasks, config.orchestrator)
    results = {sample: attempt_.result() for sample, attempt_ in enumerate(tasks) if not attempt_.cancelled()}
    ended = {sample: trajectory for sample, trajectory in results.items() if trajectory is not None}
    if not ended:
        raise next(iter(raised.values()))  # there is nothing of the others to keep
    one = next(iter(ended.values()))
    cut = [cut_short(one, n) for n in range(config.group_size) if n not in results]
    lost = [lost_to(one, n, Cause.INTERNAL_ERROR, f"{type(e).__name__}: {e}") for n, e in raised.items()]
    if on_trajectory is not None:
        for trajectory in [*cut, *lost]:
            await on_trajectory(trajectory)
    trajectories = tuple(sorted([*ended.values(), *cut, *lost], key=lambda trajectory: trajectory.sample))
    scored = [trajectory for trajectory in trajectories if trajectory.reward is not None]
    reward_failed = sum(trajectory.report.outcome is Cause.REWARD_FAILED for trajectory in trajectories)
    unstored = sum(trajectory.report.outcome is Cause.STORE_FAILED for trajectory in trajectories)
    known = len(scored) + len(cut) + reward_failed + unstored
    accepted = known == config.group_size and len(scored) >= min(2, config.group_size)
    group = (
        build_train_group(
            scored,
            group_id=group_id,
            prompt_index=prompt_index,
            config=config,
            dispatched_version=dispatched_version,
            lost_attempts=len(causes) - reward_failed - unstored,
            cut=len(cut),
            reward_failed=reward_failed,
            unstored=unstored,
        )
        if accepted
        else None
    )
    return GroupResult(trajectories, group, tuple(causes))


def episode_seed(seed: int, prompt_index: int, sample: int) -> int:
    """Distinct seed for each attempt, independent of when and where the attempt runs."""
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
    reward_failed: int = 0,
    unstored: int = 0,
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
        stats=group_stats(
            trajectories, lost_attempts=lost_attempts, cut=cut, reward_failed=reward_failed, unstored=unstored
        ),
    )


def group_stats(
    trajectories: Sequence[Trajectory],
    *,
    lost_attempts: int = 0,
    cut: int = 0,
    reward_failed: int = 0,
    unstored: int = 0,
) -> dict[str, float]:
    """Means over the group's rollouts under the names of `learning/metrics.py`."""
    n = len(trajectories)
    passed = [trajectory.verdict is Verdict.PASSED for trajectory in trajectories]
    sums: dict[str, float] = {
        "verdict/passed": float(sum(passed)),
        "tokens/policy": float(sum(t.output_tokens for t in trajectories)),
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
    played = n + cut + reward_failed + unstored
    means["rollouts/cut"] = cut / played
    means["rollouts/reward_failed"] = reward_failed / played
    means["rollouts/unstored"] = unstored / played
    return means


def _lengths(trajectories: Sequence[Trajectory], passed: Sequence[bool]) -> dict[str, float]:
    """Mean lengths by outcome; an outcome without rollouts in the group is absent."""
    out: dict[str, float] = {}
    for outcome in OUTCOMES:
        some = [t for t, good in zip(trajectories, passed, strict=True) if good == (outcome == "passed")]
        if some:
            out[f"tokens/policy/{outcome}"] = sum(t.output_tokens for t in some) / len(some)
            out[f"tokens/total/{outcome}"] = sum(t.total_tokens for t in some) / len(some)
            out[f"turns/{outcome}"] = sum(not turn.summary for t in some for turn in t.turns) / len(some)
    return out
