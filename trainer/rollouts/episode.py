"""One attempt at a task: tokens in, tokens out, tools in a sandbox, grading in a second clean one.

The transcript is an append-only list of tokens: the opening prompt, then for each turn the sampled tokens (exactly as
sampled)
and the chat template's rendering of the tool results. Nothing is decoded and re-encoded. An infrastructure failure ends
in a
trajectory with verdict `infra_error` and no reward. Everything else, including malformed calls, runaway turns and calls
that
never end, is the policy's work and is graded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sandbox.backends.base import Backend, Limits, Snapshot, released
from sandbox.backends.snapshots import SnapshotStore
from sandbox.grading.outcomes import Cause
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from trainer.config import HarnessConfig, RewardConfig, SamplingConfig
from trainer.inference.contract import InferenceClient, InferenceError
from trainer.rollouts.checkpoint import Keeper, Partials, restore
from trainer.rollouts.ending import Store, graded
from trainer.rollouts.interruption import Interruption
from trainer.rollouts.limits import EpisodeLimits, TimeSpent
from trainer.rollouts.record import Record
from trainer.rollouts.segments import KEPT_SHARE, Windows, last_turns, read_summary
from trainer.rollouts.snapshots import Origin, TurnSnapshots
from trainer.rollouts.turn import EpisodeLost, Sampler
from trainer.types import Trajectory, Turn

log = logging.getLogger(__name__)

SUMMARY_SEED = 500
"""Seed offset of summaries, apart from the seeds of turns."""


SPARE_SECONDS = 300.0
"""Seconds that an agent's sandbox outlives its episode's limits."""

VISIBLE_SECONDS = 60.0
"""Time limit of a reward's visible command."""


Watch = Callable[[int, tuple[dict[str, Any], ...], Sequence[Turn]], Awaitable[None]]
"""Called after each turn, for observers: (sample, opening messages, turns so far)."""


class ParsedTurn(Protocol):
    """A policy turn parsed from its tokens; `error` is set when an intended call does not parse."""

    @property
    def text(self) -> str: ...

    @property
    def calls(self) -> tuple[ToolCall, ...]: ...

    @property
    def error(self) -> str | None: ...

    @property
    def thinking_tokens(self) -> int: ...


class Renderer(Protocol):
    """The policy's chat template: the only conversion between messages or calls and tokens."""

    stop_ids: list[int]

    def start(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]: ...

    def observe(self, results: Sequence[ToolResult], ask: str = "") -> list[int]: ...

    def parse(self, token_ids: Sequence[int]) -> ParsedTurn: ...


@dataclass(frozen=True, slots=True)
class RolloutServices:
    """Services of episodes. `slots` bounds the episodes that hold sandboxes at the same time."""

    client: InferenceClient
    renderer: Renderer
    backend: Backend
    environments: EnvironmentStore
    deployment: str
    slots: asyncio.Semaphore
    snapshots: SnapshotStore | None = None
    """Store of per-turn snapshots, for settings that request them."""
    partials: Partials | None = None
    """Store of attempts in progress, each beside its newest snapshot."""
    watch: Watch | None = None
    store: Store | None = None
    min_version: int = 0
    """Minimum policy version of the engine before it samples a token."""
    min_kept_version: int = 0
    """Minimum version of a saved attempt's tokens; older attempts of a lost worker start over."""


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    sampling: SamplingConfig
    harness: HarnessConfig
    reward: RewardConfig
    interruption: Interruption | None = None
    """User message in mid-episode, for evaluating how a policy handles interruptions."""

    def asked(self, turns: int) -> str:
        """User message after this many turns; usually empty."""
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
    """Run one episode to a graded, scored trajectory. Never raises for policy or infrastructure faults; may be
    cancelled.

    With an `origin` it continues from there: same sandbox, same tokens, and earlier turns count towards the limits.
    With `resume` it
    continues an attempt saved by a lost worker, if any (`checkpoint.py`); that attempt's tokens are its own.
    """
    keeper = Keeper(services.partials, task, sample, seed)
    partial = await keeper.usable(services.snapshots, services.min_kept_version) if resume else None
    try:
        record = restore(partial[0]) if partial else Record.begin(task, origin)
        snapshot = partial[1].snapshot if partial else origin.snapshot if origin else None
        limits = EpisodeLimits.of(settings.sampling)
        limits.turns.used = sum(not turn.summary for turn in record.turns)
        limits.tools.used = sum(turn.tool_seconds for turn in record.turns)

        async def act() -> StopReason:
            return await _act(record, limits, task, session_id, seed, settings, services, snapshot, keeper)

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
            store=services.store,
        )
    finally:
        if partial:
            partial[1].close()


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
    """Run the turns in a fresh sandbox, or in one restored from a `snapshot`, and take the patch."""
    started = time.monotonic()
    profile = get_profile(settings.harness.profile)
    env = services.environments.spec(task.environment, profile.machine)
    async with limits.machine.spending():
        fresh = await services.backend.start(env, limits=agent_limits(limits), snapshot=snapshot)
    async with released(fresh) as sandbox:
        session = Session(sandbox, profile)
        record.schema_hash = session.schema_hash
        if record.turns:
            session.recall([call for turn in record.turns for call in turn.calls])
        else:
            record.read(services.renderer.start(record.messages, session.schemas()))
        record.spend("start", time.monotonic() - started)
        kept = TurnSnapshots(services.snapshots, settings.harness.snapshot_every)
        try:
            stop = await _turns(record, limits, session, session_id, seed, settings, services, kept, keeper)
        except (TimeSpent, InferenceError):
            if not limits.written_away:
                raise
            stop = StopReason.TIME_LIMIT
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
    sample = Sampler(
        record,
        limits,
        session_id,
        settings.sampling,
        services.client,
        services.deployment,
        stop_ids,
        services.min_version,
    )
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
        results, tool_seconds, late = await run_tools(session, calls, limits)
        record.spend("tools", tool_seconds)
        began = time.monotonic()
        over = cut or late or not results or session.finished
        snapshot = "" if over else await kept.after(len(record.turns), session.sandbox)
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
            async with limits.machine.spending():
                await _show(services.watch, keeper.sample, record)
        refuse_infrastructure(results)
        if cut:
            return StopReason.TIME_LIMIT if limits.written_away else StopReason.TOKEN_LIMIT
        if late:
            return StopReason.TIME_LIMIT
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
            async with limits.machine.spending():
                await keeper.keep(record, snapshot)


async def _show(watch: Watch, sample: int, record: Record) -> None:
    """Notify observers. A failure does not affect the rollout."""
    try:
        await watch(sample, record.messages, record.turns)
    except Exception:
        log.warning("sample %d cannot be looked at while it runs", sample, exc_info=True)


def agent_limits(limits: EpisodeLimits) -> Limits:
    """Limits of an agent's sandbox; it lives as long as its episode may last."""
    usual = Limits()
    return replace(usual, life_seconds=max(usual.life_seconds, limits.wall_seconds + SPARE_SECONDS))


async def run_tools(
    session: Session, calls: Sequence[ToolCall], limits: EpisodeLimits
) -> tuple[tuple[ToolResult, ...], float, bool]:
    """Run one turn's calls. Return results, seconds taken, and whether they used up the episode's time.

    In that case the calls were ended, and what they did so far is the policy's work. Raises HarnessFailure.
    """
    if not calls:
        return (), 0.0, False
    before = limits.tools.used
    try:
        async with limits.tools.spending():
            results = tuple(await session.run(calls))
        return results, limits.tools.used - before, False
    except TimeSpent:
        message = f"the episode's {limits.tools.most:g} s for tool calls are used up"
        error = ToolError(kind=ToolErrorKind.TIMEOUT, message=message)
        results = tuple(ToolResult(call_id=call.id, output=f"error: {message}", error=error) for call in calls)
        return results, limits.tools.used - before, True


def refuse_infrastructure(results: Sequence[ToolResult]) -> None:
    """Raises EpisodeLost when a tool failed for reasons outside the policy."""
    lost = next((r.error for r in results if r.error and r.error.kind is ToolErrorKind.INFRASTRUCTURE), None)
    if lost is not None:
        raise EpisodeLost(Cause.TOOL_FAILED, f"a tool failed for reasons of its own: {lost.message}")


async def _summarize(
    record: Record, windows: Windows, session: Session, sample: Sampler, seed: int, services: RolloutServices
) -> None:
    """Sample the policy's summary after its request, and open the next window with it."""
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
