"""One attempt at a task: tokens in, tokens out, tools in a sandbox, grading in a second clean one.

The transcript is a list of tokens that only grows: the opening prompt, then for each turn what the policy sampled
(kept exactly as sampled) and what the chat template makes of the tool results. Nothing is decoded and encoded again.
Whatever the infrastructure breaks ends as a trajectory with verdict `infra_error` and no reward; everything else,
malformed calls and runaway turns included, is the policy's work and is graded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.backends.base import Backend, Patch, SandboxError
from sandbox.backends.snapshots import SnapshotStore
from sandbox.grading.grader import cause_of, grade
from sandbox.grading.outcomes import Cause
from sandbox.grading.patch import render
from sandbox.grading.report import Report, Verdict
from sandbox.harness.errors import HarnessFailure
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session, system_prompt
from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import TaskError
from sandbox.tasks.spec import TaskSpec
from trainer.config import HarnessConfig, RewardConfig, SamplingConfig
from trainer.inference.contract import GenerateRequest, GenerateResponse, InferenceClient, InferenceError
from trainer.rewards import RewardError, score
from trainer.rollouts.limits import EpisodeLimits
from trainer.rollouts.snapshots import Origin, TurnSnapshots
from trainer.rollouts.types import Forked, Segment, Trajectory, Turn


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

    def observe(self, results: Sequence[ToolResult]) -> list[int]: ...

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


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    sampling: SamplingConfig
    harness: HarnessConfig
    reward: RewardConfig


class EpisodeLost(Exception):
    """The infrastructure under an episode failed; the episode says nothing about the policy."""

    def __init__(self, outcome: Cause, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(slots=True)
class _Record:
    """What an episode has produced so far; becomes the trajectory whatever ends it."""

    messages: tuple[dict[str, Any], ...]
    schema_hash: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    patch: Patch = field(default_factory=Patch)
    seconds: dict[str, float] = field(default_factory=dict)
    forked: Forked | None = None

    @classmethod
    def begin(cls, task: TaskSpec, origin: Origin | None) -> _Record:
        """Of a fresh episode, or of one that goes on from `origin`: it has read all that came before, sampled none."""
        if origin is None:
            return cls(messages=opening_messages(task))
        record = cls(messages=origin.messages, turns=list(origin.turns), forked=origin.forked)
        record.read(origin.tokens)
        return record

    def read(self, tokens: Sequence[int]) -> None:
        """Append tokens that the policy was shown."""
        self.tokens += tokens
        self.logprobs += [0.0] * len(tokens)
        self.loss_mask += [0] * len(tokens)
        self.versions += [-1] * len(tokens)

    def wrote(self, response: GenerateResponse) -> None:
        """Append tokens that the policy sampled, with the version that sampled each of them."""
        versions = [-1] * len(response.token_ids)
        for span in response.spans:
            versions[span.start : span.end] = [span.version] * (span.end - span.start)
        if len(response.logprobs) != len(response.token_ids) or min(versions, default=0) < 0:
            raise InferenceError(
                f"the engine returned {len(response.token_ids)} tokens with {len(response.logprobs)} log-probabilities "
                f"and version spans {[(s.start, s.end, s.version) for s in response.spans]}"
            )
        self.tokens += response.token_ids
        self.logprobs += response.logprobs
        self.loss_mask += [1] * len(response.token_ids)
        self.versions += versions

    def spend(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


async def run_episode(
    *,
    task: TaskSpec,
    sample: int,
    session_id: str,
    seed: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    origin: Origin | None = None,
) -> Trajectory:
    """One graded, scored trajectory. Never raises for what the policy or the infrastructure did; may be cancelled.

    With an `origin` it goes on from there: same sandbox, same tokens, and its turns count towards the limits.
    """
    record = _Record.begin(task, origin)
    limits = EpisodeLimits.of(settings.sampling)
    limits.turns.used = len(record.turns)
    limits.tools.used = sum(turn.tool_seconds for turn in record.turns)
    queued = time.monotonic()
    async with services.slots:
        record.spend("queue", time.monotonic() - queued)
        limits.started = started = time.monotonic()
        try:
            async with asyncio.timeout(limits.wall_seconds):
                stop = await _act(record, limits, task, session_id, seed, settings, services, origin)
                with_grade = time.monotonic()
                report = await grade(
                    backend=services.backend, environments=services.environments, task=task, patch=record.patch
                )
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
        return score(trajectory, settings.reward)
    except RewardError as error:
        # The work is judged but not priced: missing data, like any other fault of ours.
        report = _lost(task, Cause.REWARD_FAILED, str(error))
        return trajectory.model_copy(update={"report": report, "stop_reason": StopReason.INFRA_ERROR})


def opening_messages(task: TaskSpec) -> tuple[dict[str, Any], ...]:
    """System message of the harness and the task's instruction as the user's message."""
    return ({"role": "system", "content": system_prompt()}, {"role": "user", "content": task.instruction})


async def _act(
    record: _Record,
    limits: EpisodeLimits,
    task: TaskSpec,
    session_id: str,
    seed: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    origin: Origin | None,
) -> StopReason:
    """Run the turns in a fresh sandbox, or in one that goes on from `origin`, and take the patch."""
    started = time.monotonic()
    profile = get_profile(settings.harness.profile)
    env, snapshot = services.environments.spec(task.environment, profile.machine), origin.snapshot if origin else None
    async with await services.backend.start(env, snapshot=snapshot) as sandbox:
        session = Session(sandbox, profile)
        record.schema_hash = session.schema_hash
        if origin:
            session.recall([call for turn in origin.turns for call in turn.calls])
        else:
            record.read(services.renderer.start(record.messages, session.schemas()))
        record.spend("start", time.monotonic() - started)
        kept = TurnSnapshots(services.snapshots, settings.harness.snapshot_every)
        stop = await _turns(record, limits, session, session_id, seed, settings, services, kept)
        record.patch = await sandbox.diff()
    return stop


async def _turns(
    record: _Record,
    limits: EpisodeLimits,
    session: Session,
    session_id: str,
    seed: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    kept: TurnSnapshots,
) -> StopReason:
    while True:
        limits.tokens.used = len(record.tokens)
        if (reached := limits.reached()) is not None:
            return reached
        turn_start = len(record.tokens)
        began = time.monotonic()
        response = await services.client.generate(
            GenerateRequest(
                deployment=services.deployment,
                prompt_ids=record.tokens,
                max_tokens=limits.tokens.room(),
                temperature=settings.sampling.temperature,
                stop_ids=services.renderer.stop_ids,
                seed=(seed * 1009 + limits.turns.used) % (1 << 31),
                session=session_id,
                timeout_seconds=max(1.0, limits.wall_left()),
            )
        )
        generate_seconds = time.monotonic() - began
        record.spend("generate", generate_seconds)
        if response.finish_reason == "abort":
            raise EpisodeLost(Cause.ENGINE_FAILED, "the engine aborted a request")
        record.wrote(response)
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
        snapshot = "" if cut or not results or session.finished else await kept.after(len(record.turns), session.sandbox)
        record.spend("snapshots", time.monotonic() - began)
        if parsed.error and not cut:
            error = ToolError(kind=ToolErrorKind.MALFORMED_CALL, message=parsed.error)
            results = (ToolResult(call_id="", output=f"error: {parsed.error}", error=error),)
        record.turns.append(
            Turn(
                index=len(record.turns),
                text=parsed.text,
                token_start=turn_start,
                token_end=len(record.tokens),
                thinking_tokens=parsed.thinking_tokens,
                calls=calls,
                results=results,
                generate_seconds=generate_seconds,
                tool_seconds=tool_seconds,
                snapshot=snapshot,
            )
        )
        lost = next((r.error for r in results if r.error and r.error.kind is ToolErrorKind.INFRASTRUCTURE), None)
        if lost is not None:
            raise EpisodeLost(Cause.TOOL_FAILED, f"a tool failed for reasons of its own: {lost.message}")
        if cut:
            return StopReason.TOKEN_LIMIT
        if parsed.error and settings.harness.end_on_malformed_call:
            return StopReason.MALFORMED_CALL
        if not results:
            return StopReason.NO_TOOL_CALL
        if session.finished:
            return StopReason.FINISHED
        record.read(services.renderer.observe(results))


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
    record: _Record, task: TaskSpec, sample: int, stop: StopReason, report: Report, limits: EpisodeLimits
) -> Trajectory:
    segment = Segment(
        tokens=record.tokens, logprobs=record.logprobs, loss_mask=record.loss_mask, versions=record.versions
    )
    return Trajectory(
        task_id=task.id,
        bundle_hash=task.bundle_hash,
        sample=sample,
        messages=record.messages,
        tool_schema_hash=record.schema_hash,
        turns=tuple(record.turns),
        segments=(segment,) if record.tokens else (),
        stop_reason=stop,
        patch=render(record.patch),
        patch_skipped=tuple(f"{path}: {why}" for path, why in record.patch.skipped),
        report=report,
        seconds={phase: round(value, 4) for phase, value in record.seconds.items()},
        limits_in_force=limits.describe(),
        forked=record.forked,
    )
