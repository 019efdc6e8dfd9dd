"""The end of an episode: its work is graded, scored and stored, or lost with a cause.

The exception type determines the cause (`sandbox/grading/verdict/outcomes.py`). Time spent by the policy and its work
counts against the policy. Grading has limits of its own, so tests that never end are a failure, not missing data.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from sandbox.backends.base import Backend, Patch, SandboxError
from sandbox.errors import TaskError
from sandbox.grading.grader import cause_of, grade
from sandbox.grading.patches.patch import render
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.errors import HarnessFailure
from sandbox.harness.types import StopReason
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from trainer.config import RewardConfig
from trainer.inference.contract import InferenceError
from trainer.rewards import RewardError, score
from trainer.rollouts.limits import EpisodeLimits, TimeSpent
from trainer.rollouts.losses import Scene
from trainer.rollouts.record import Record
from trainer.rollouts.turn import EpisodeLost
from trainer.types import Trajectory

log = logging.getLogger(__name__)

REWARD_PAUSES = (1.0, 5.0, 25.0)
"""Seconds between attempts at a failed reward part; a language model may be overloaded for a while."""

STORE_PAUSES = (1.0, 5.0, 25.0)
"""Seconds between attempts to store a finished rollout; a full disk or a file server may be back soon."""

GRADINGS = 2
"""Maximum gradings of one episode's work; the second applies when the infrastructure lost the first."""

Store = Callable[[Trajectory], Awaitable[None]]
"""Stores a finished trajectory. Raises OSError when the store fails; any other error means invalid content."""


async def graded(
    record: Record,
    limits: EpisodeLimits,
    act: Callable[[], Awaitable[StopReason]],
    *,
    task: TaskSpec,
    sample: int,
    reward: RewardConfig,
    slots: asyncio.Semaphore,
    backend: Backend,
    environments: EnvironmentStore,
    scene: Scene,
    store: Store | None = None,
) -> Trajectory:
    """Run an episode whose turns `act` plays; grade and score its work, or record its loss with a cause."""
    queued = time.monotonic()
    async with slots:
        record.spend("queue", time.monotonic() - queued)
        limits.started = started = time.monotonic()
        try:
            stop = await _within(limits, act)
            with_grade = time.monotonic()
            report = await _judged(backend, environments, task, record.patch)
            record.spend("grade", time.monotonic() - with_grade)
        except Overtime as error:
            stop = StopReason.TIME_LIMIT
            report = Report(
                verdict=Verdict.FAILED, outcome=Cause.OVERTIME, cause=str(error), bundle_hash=task.bundle_hash
            )
        except TimeSpent:
            cause = (
                f"waiting for the engine and for a sandbox used up {limits.machine.limit:g} s (sampling.engine_seconds)"
            )
            stop, report = StopReason.INFRA_ERROR, _lost(task, Cause.EPISODE_STUCK, cause)
        except (SandboxError, HarnessFailure, InferenceError, TaskError, OSError, EpisodeLost) as error:
            stop, report = StopReason.INFRA_ERROR, _lost(task, outcome_of(error), f"{type(error).__name__}: {error}")
            if await scene.broken_by_policy(error, limits.tools.limit):
                stop, report = StopReason.SANDBOX_BROKEN, _broken(task, error)
        except Exception as error:
            log.exception("an episode of task %s raised", task.id)
            cause = f"{type(error).__name__}: {error}"
            outcome = Cause.DISK_FULL if cause_of(error) is Cause.DISK_FULL else Cause.INTERNAL_ERROR
            stop, report = StopReason.INFRA_ERROR, _lost(task, outcome, cause)
        record.spend("total", time.monotonic() - started)
    if report.verdict is Verdict.INFRA_ERROR:
        stop = StopReason.INFRA_ERROR
    # In a thread: the diff of what was changed takes up to a second, and other episodes go on in this loop.
    whole = await asyncio.to_thread(_trajectory, record, task, sample, stop, report, limits)
    trajectory = await _scored(whole, task, reward)
    return await stored(trajectory, store, task, reward) if store is not None else trajectory


async def _judged(backend: Backend, environments: EnvironmentStore, task: TaskSpec, patch: Patch) -> Report:
    """Grade the work. A grading lost to infrastructure is repeated; the episode is not."""
    for _ in range(GRADINGS):
        report = await grade(backend=backend, environments=environments, task=task, patch=patch)
        if not report.retry:
            break
        log.warning("a grading of task %s was lost: %s", task.id, report.cause)
    return report


class Overtime(Exception):
    """The policy's own calls used up the episode's time, and there is no patch."""


async def _within(limits: EpisodeLimits, act: Callable[[], Awaitable[StopReason]]) -> StopReason:
    """Play the turns under the episode's wall-time limit. Raises Overtime, TimeSpent and the errors of `act`.

    Time spent waiting for the engine and the sandbox is measured; all other time belongs to the policy and its work.
    """
    try:
        async with asyncio.timeout(limits.wall_seconds) as net:
            return await act()
    except TimeoutError as error:
        if not net.expired():
            raise
        if limits.machine.reached():
            raise TimeSpent from error
        used = time.monotonic() - limits.started - limits.machine.used
        raise Overtime(
            f"the policy's calls and its work used up {used:.0f} s of {limits.tools.limit:g} s, and nothing was graded"
        ) from error


async def stored(trajectory: Trajectory, store: Store, task: TaskSpec, reward: RewardConfig) -> Trajectory:
    """Store the trajectory and return it. Content that cannot be stored is a failure of the policy, which produced it.

    A failure of the store itself (such as a full disk) is retried without repeating the episode, and loses only this
    rollout if it goes on.
    """
    try:
        await _store(trajectory, store)
    except OSError as error:
        return _unstored(trajectory, task, Cause.STORE_FAILED, error)
    except Exception as error:
        log.exception("a rollout of task %s cannot be stored", task.id)
        if trajectory.verdict is Verdict.INFRA_ERROR:
            return _unstored(trajectory, task, Cause.INTERNAL_ERROR, error)
        report = Report(
            verdict=Verdict.FAILED,
            outcome=Cause.UNSTORABLE,
            cause=f"the rollout cannot be stored: {type(error).__name__}"[:500],
            seconds=trajectory.report.seconds,
            bundle_hash=task.bundle_hash,
        )
        without: dict[str, object] = {
            "turns": (), "patch": "", "patch_skipped": (), "report": report, "reward_parts": (), "reward": None
        }  # fmt: skip
        try:
            plain = Trajectory.model_validate({**dict(trajectory), **without})  # which makes its messages storable
            plain = await _scored(plain, task, reward)
            await _store(plain, store)
        except OSError as again:
            return _unstored(trajectory, task, Cause.STORE_FAILED, again)
        except Exception as again:  # noqa: BLE001
            return _unstored(trajectory, task, Cause.INTERNAL_ERROR, again)
        return plain
    return trajectory


async def _store(trajectory: Trajectory, store: Store) -> None:
    """Raises what `store` raises, OSError after the last of several tries."""
    for pause in STORE_PAUSES:
        try:
            return await store(trajectory)
        except OSError as error:
            log.warning("a rollout of task %s is not stored yet: %s", trajectory.task_id, error)
        await asyncio.sleep(pause)
    await store(trajectory)


def _unstored(trajectory: Trajectory, task: TaskSpec, outcome: Cause, error: Exception) -> Trajectory:
    report = _lost(task, outcome, f"the rollout could not be stored: {type(error).__name__}: {error}")
    changed = {"report": report, "stop_reason": StopReason.INFRA_ERROR, "reward_parts": (), "reward": None}
    return trajectory.model_copy(update=changed)


async def _scored(trajectory: Trajectory, task: TaskSpec, reward: RewardConfig) -> Trajectory:
    """Score the trajectory. A failed reward part is retried without repeating the episode.

    If it keeps failing, the work has a verdict and no reward, and this rollout is missing data.
    """
    for pause in (*REWARD_PAUSES, None):
        try:
            return await asyncio.to_thread(score, trajectory, reward)  # a part may wait for a language model
        except RewardError as error:
            failure = error
        if pause is None or not failure.again:
            break
        await asyncio.sleep(pause)
    report = _lost(task, Cause.REWARD_FAILED, str(failure))
    return trajectory.model_copy(update={"report": report, "stop_reason": StopReason.INFRA_ERROR})


def outcome_of(error: Exception) -> Cause:
    """Row of the outcome table for an error under an episode."""
    if isinstance(error, EpisodeLost):
        return error.outcome
    if isinstance(error, InferenceError):
        return error.outcome
    found = cause_of(error)
    return Cause.TOOL_FAILED if isinstance(error, HarnessFailure) and found is not Cause.DISK_FULL else found


def _lost(task: TaskSpec, outcome: Cause, cause: str) -> Report:
    return Report(verdict=Verdict.INFRA_ERROR, outcome=outcome, cause=cause[:500], bundle_hash=task.bundle_hash)


def _broken(task: TaskSpec, error: Exception) -> Report:
    cause = f"lost twice under the policy's calls, and held without them: {type(error).__name__}: {error}"
    outcome = Cause.SANDBOX_BROKEN_BY_WORK
    return Report(verdict=Verdict.FAILED, outcome=outcome, cause=cause[:500], bundle_hash=task.bundle_hash)


def _trajectory(
    record: Record, task: TaskSpec, sample: int, stop: StopReason, report: Report, limits: EpisodeLimits
) -> Trajectory:
    record.close_segment()
    return Trajectory(
        task_id=task.id,
        bundle_hash=task.bundle_hash,
        sample=sample,
        messages=record.messages,
        tool_schema_hash=record.schema_hash,
        turns=tuple(record.turns),
        segments=tuple(record.segments),
        stop_reason=stop,
        patch=render(record.patch),
        patch_skipped=tuple(f"{path}: {why}" for path, why in record.patch.skipped),
        report=report,
        visible_passed=record.visible_passed,
        seconds={phase: round(value, 4) for phase, value in record.seconds.items()},
        limits_in_force=limits.describe(),
        forked=record.forked,
        usage=record.usage,
    )
