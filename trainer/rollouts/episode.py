"""One attempt at a task: tokens in, tokens out, tools in a sandbox, grading in a second clean one.

The transcript is a list of tokens that only grows: the opening prompt, then for each turn what the policy sampled
(kept exactly as sampled) and what the chat template makes of the tool results. Nothing is decoded and encoded again.
Whatever the infrastructure breaks ends as a trajectory with verdict `infra_error` and no reward; everything else,
malformed calls and runaway turns included, is the policy's work and is graded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.backends.base import Backend, SandboxError, Snapshot
from sandbox.backends.snapshots import SnapshotStore
from sandbox.grading.grader import cause_of, grade
from sandbox.grading.outcomes import Cause
from sandbox.grading.patch import render
from sandbox.grading.report import Report, Verdict
from sandbox.harness.errors import HarnessFailure
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import TaskError
from sandbox.tasks.spec import TaskSpec
from trainer.config import HarnessConfig, RewardConfig, SamplingConfig
from trainer.inference.contract import InferenceClient, InferenceError
from trainer.rewards import RewardError, score
from trainer.rollouts.interruption import Interruption
from trainer.rollouts.limits import EpisodeLimits
from trainer.rollouts.partial import Keeper, Partials, restore
from trainer.rollouts.record import Record
from trainer.rollouts.segments import KEPT_SHARE, Windows, last_turns, read_summary
from trainer.rollouts.snapshots import Origin, TurnSnapshots
from trainer.rollouts.turn import EpisodeLost, Sampler
from trainer.rollouts.types import Trajectory, Turn

SUMMARY_SEED = 500
"""Seeds of summaries, away from those of turns."""


VISIBLE_SECONDS = 60.0
"""Bound on the visible command of a reward that asks for one."""


Watch = Callable[[int, tuple[dict[str, Any], ...], Sequence[Turn]], Awaitable[None]]
"""Told of each turn as it ends, for people who look on: (sample, opening messages, turns so far)."""


class ParsedTurn(Protocol):
    """A policy turn read back from its tokens; `error` when a call was meant and does not parse."""

    @property
    def text(self) -> str: ...

    @property
    def calls(self) -> tuple[ToolCall, ...]: ...

    @property
    def error(self) -> str | None: ...

    @property
    def thinking_tokens(self) -> int: ...


class Renderer(Protocol):
    """The policy's own chat template: the only place where messages become tokens and tokens become calls."""

    stop_ids: list[int]

    def start(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]: ...

    def observe(self, results: Sequence[ToolResult], ask: str = "") -> list[int]: ...

    def parse(self, token_ids: Sequence[int]) -> ParsedTurn: ...


@dataclass(frozen=True, slots=True)
class RolloutServices:
    """What episodes run on. `slots` bounds the episodes that hold sandboxes at the same time."""

    client: InferenceClient
    renderer: Renderer
    backend: Backend
    environments: EnvironmentStore
    deployment: str
    slots: asyncio.Semaphore
    snapshots: SnapshotStore | None = None
    """Where snapshots of turns are kept, for settings that ask for them."""
    partials: Partials | None = None
    """Where attempts in the middle are kept, each beside its newest snapshot."""
    watch: Watch | None = None


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    sampling: SamplingConfig
    harness: HarnessConfig
    reward: RewardConfig
    interruption: Interruption | None = None
    """What a person says in the middle, in evaluations of how a policy takes it."""

    def asked(self, turns: int) -> str:
        """What the user says after so many turns; mostly nothing."""
        return self.interruption.says if self.interruption and turns == self.interruption.after_turns else ""


async def run_episode(
    *,
    task: TaskSpec,
    sample: int,
    session_id: str,
    seed: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    origin: Origin | None = None,
    resume: bool = False,
) -> Trajectory:
    """One graded, scored trajectory. Never raises for what the policy or the infrastructure did; may be cancelled.

    With an `origin` it goes on from there: same sandbox, same tokens, and its turns count towards the limits. With
    `resume` it goes on from where a lost worker kept it, if one did (`partial.py`): then its tokens are its own.
    """
    keeper = Keeper(services.partials, task, sample, seed)
    partial = await keeper.usable(services.snapshots) if resume else None
    record = restore(partial[0]) if partial else Record.begin(task, origin)
    snapshot = partial[1].snapshot if partial else origin.snapshot if origin else None
    limits = EpisodeLimits.of(settings.sampling)
    limits.turns.used = sum(not turn.summary for turn in record.turns)
    limits.tools.used = sum(turn.tool_seconds for turn in record.turns)

    async def act() -> StopReason:
        return await _act(record, limits, task, session_id, seed, settings, services, snapshot, keeper)

    try:
        return await graded(
            record,
            limits,
            act,
            task=task,
            sample=sample,
            reward=settings.reward,
            slots=services.slots,
            backend=services.backend,
            environments=services.environments,
        )
    finally:
        if partial:
            partial[1].close()


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
) -> Trajectory:
    """What comes of an episode whose turns `act` makes: its work graded and scored, or lost with a cause."""
    queued = time.monotonic()
    async with slots:
        record.spend("queue", time.monotonic() - queued)
        limits.started = started = time.monotonic()
        try:
            async with asyncio.timeout(limits.wall_seconds):
                stop = await act()
                with_grade = time.monotonic()
                report = await grade(backend=backend, environments=environments, task=task, patch=record.patch)
                record.spend("grade", time.monotonic() - with_grade)
        except TimeoutError:
            cause = f"no end after {limits.wall_seconds:g} s: engine or sandboxes are too slow or stuck"
            stop, report = StopReason.INFRA_ERROR, _lost(task, Cause.EPISODE_STUCK, cause)
        except (SandboxError, HarnessFailure, InferenceError, TaskError, OSError, EpisodeLost) as error:
            stop, report = StopReason.INFRA_ERROR, _lost(task, outcome_of(error), f"{type(error).__name__}: {error}")
        record.spend("total", time.monotonic() - started)
    if report.verdict is Verdict.INFRA_ERROR:
        stop = StopReason.INFRA_ERROR
    trajectory = _trajectory(record, task, sample, stop, report, limits)
    try:
        return await asyncio.to_thread(score, trajectory, reward)  # a part may wait for a language model
    except RewardError as error:
        # The work is judged but not priced: missing data, like any other fault of ours.
        report = _lost(task, Cause.REWARD_FAILED, str(error))
        return trajectory.model_copy(update={"report": report, "stop_reason": StopReason.INFRA_ERROR})


async def _act(
    record: Record,
    limits: EpisodeLimits,
    task: TaskSpec,
    session_id: str,
    seed: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    snapshot: Snapshot | None,
    keeper: Keeper,
) -> StopReason:
    """Run the turns in a fresh sandbox, or in one that goes on from a `snapshot`, and take the patch."""
    started = time.monotonic()
    profile = get_profile(settings.harness.profile)
    env = services.environments.spec(task.environment, profile.machine)
    async with await services.backend.start(env, snapshot=snapshot) as sandbox:
        session = Session(sandbox, profile)
        record.schema_hash = session.schema_hash
        if record.turns:
            session.recall([call for turn in record.turns for call in turn.calls])
        else:
            record.read(services.renderer.start(record.messages, session.schemas()))
        record.spend("start", time.monotonic() - started)
        kept = TurnSnapshots(services.snapshots, settings.harness.snapshot_every)
        stop = await _turns(record, limits, session, session_id, seed, settings, services, kept, keeper)
        record.patch = await sandbox.diff()
        if settings.reward.visible_weight:  # after the patch was taken: what the command leaves is no work
            ran = await sandbox.exec(settings.reward.visible_command, timeout=VISIBLE_SECONDS)
            record.visible_passed = ran.exit_code == 0
    return stop


async def _turns(
    record: Record,
    limits: EpisodeLimits,
    session: Session,
    session_id: str,
    seed: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    kept: TurnSnapshots,
    keeper: Keeper,
) -> StopReason:
    windows = Windows(settings.harness.summary, settings.sampling.max_context_tokens, made=len(record.segments))
    stop_ids = tuple(services.renderer.stop_ids)
    sample = Sampler(record, limits, session_id, settings.sampling, services.client, services.deployment, stop_ids)
    if record.asked_summary:
        await _summarize(record, windows, session, sample, seed, services)
    while True:
        limits.tokens.used = len(record.tokens)
        if (reached := limits.reached()) is not None:
            return reached
        turn_start = len(record.tokens)
        response, generate_seconds = await sample(limits.tokens.room(), seed * 1009 + limits.turns.used)
        limits.turns.used += 1
        parsed = services.renderer.parse(response.token_ids)
        cut = response.finish_reason == "length"
        calls = () if cut or parsed.error else parsed.calls
        began = time.monotonic()
        results = tuple(await session.run(calls)) if calls else ()
        tool_seconds = time.monotonic() - began
        record.spend("tools", tool_seconds)
        limits.tools.used += tool_seconds
        began = time.monotonic()
        snapshot = (
            "" if cut or not results or session.finished else await kept.after(len(record.turns), session.sandbox)
        )
        record.spend("snapshots", time.monotonic() - began)
        if parsed.error and not cut:
            error = ToolError(kind=ToolErrorKind.MALFORMED_CALL, message=parsed.error)
            results = (ToolResult(call_id="", output=f"error: {parsed.error}", error=error),)
        asked = settings.asked(len(record.turns) + 1) if results and not session.finished else ""
        record.turns.append(
            Turn(
                index=len(record.turns),
                segment=len(record.segments),
                text=parsed.text,
                token_start=turn_start,
                token_end=len(record.tokens),
                thinking_tokens=parsed.thinking_tokens,
                asked=asked,
                calls=calls,
                results=results,
                generate_seconds=generate_seconds,
                tool_seconds=tool_seconds,
                snapshot=snapshot,
            )
        )
        if services.watch is not None:
            await services.watch(keeper.sample, record.messages, record.turns)
        refuse_infrastructure(results)
        if cut:
            return StopReason.TOKEN_LIMIT
        if parsed.error and settings.harness.end_on_malformed_call:
            return StopReason.MALFORMED_CALL
        if not results:
            return StopReason.NO_TOOL_CALL
        if session.finished:
            return StopReason.FINISHED
        observation = services.renderer.observe(results, ask=asked)
        if asked or not windows.full(len(record.tokens) + len(observation)):
            record.read(observation)
        elif windows.asks:
            question = windows.question(len(record.tokens), results, services.renderer)
            if question is None:
                return StopReason.TOKEN_LIMIT
            record.read(question)
            await _summarize(record, windows, session, sample, seed, services)
        else:
            record.read(observation)
            room = int(windows.settings.trigger_tokens * KEPT_SHARE)
            kept_tokens = last_turns(record.tokens, record.turns, len(record.segments), room)
            record.close_segment()
            windows.made += 1
            record.read([*services.renderer.start(record.messages, session.schemas()), *kept_tokens])
        if snapshot:
            await keeper.keep(record, snapshot)


def refuse_infrastructure(results: Sequence[ToolResult]) -> None:
    """Raises EpisodeLost when a tool failed for reasons that are not the policy's."""
    lost = next((r.error for r in results if r.error and r.error.kind is ToolErrorKind.INFRASTRUCTURE), None)
    if lost is not None:
        raise EpisodeLost(Cause.TOOL_FAILED, f"a tool failed for reasons of its own: {lost.message}")


async def _summarize(
    record: Record, windows: Windows, session: Session, sample: Sampler, seed: int, services: RolloutServices
) -> None:
    """The question was read: take the policy's summary and open the next window with it."""
    start = len(record.tokens)
    record.asked_summary = False
    windows.made += 1
    response, seconds = await sample(windows.settings.max_tokens, seed * 1009 + SUMMARY_SEED + windows.made)
    parsed = services.renderer.parse(response.token_ids)
    record.turns.append(
        Turn(
            index=len(record.turns),
            segment=len(record.segments),
            text=parsed.text,
            summary=True,
            token_start=start,
            token_end=len(record.tokens),
            thinking_tokens=parsed.thinking_tokens,
            generate_seconds=seconds,
        )
    )
    record.close_segment()
    messages = windows.next_messages(record.messages, read_summary(parsed.text), session.todos)
    record.read(services.renderer.start(messages, session.schemas()))


def outcome_of(error: Exception) -> Cause:
    """The row of the outcome table for what broke under an episode."""
    if isinstance(error, EpisodeLost):
        return error.outcome
    if isinstance(error, HarnessFailure):
        return Cause.TOOL_FAILED
    return Cause.ENGINE_FAILED if isinstance(error, InferenceError) else cause_of(error)


def _lost(task: TaskSpec, outcome: Cause, cause: str) -> Report:
    return Report(verdict=Verdict.INFRA_ERROR, outcome=outcome, cause=cause[:500], bundle_hash=task.bundle_hash)


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
