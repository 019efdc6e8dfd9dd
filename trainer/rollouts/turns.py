"""The turns of an episode: ask the policy, run its tool calls, record the turn, until something ends it.

The loop is the same for a policy that is sampled token by token (`episode.py`) and for one behind an endpoint (`chat.py`);
what differs is a `Player`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox.grading.verdict.outcomes import Cause
from sandbox.harness.session import Session
from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from trainer.config import HarnessConfig, RewardConfig, SamplingConfig
from trainer.inference.contract import InferenceError
from trainer.rollouts.interruption import Interruption
from trainer.rollouts.limits import EpisodeLimits, TimeSpent
from trainer.rollouts.record import Record
from trainer.rollouts.turn import EpisodeLost
from trainer.types import Turn


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


@dataclass(frozen=True, slots=True)
class Reply:
    """What the policy said in one turn."""

    text: str
    calls: tuple[ToolCall, ...]
    """Calls to run; none when the turn was cut."""
    seconds: float
    cut: bool = False
    """The turn reached its token limit."""
    error: str | None = None
    """An intended call that does not parse."""
    refusals: tuple[ToolResult, ...] = ()
    """The answer to such a call."""
    thinking_tokens: int = 0
    segment: int = 0
    token_start: int = 0
    token_end: int = 0


class Player(Protocol):
    """The policy's side of an episode."""

    async def begin(self) -> None:
        """Do what is due before the first turn, for example the summary that an interrupted rollout was asked for."""
        ...

    async def ask(self) -> Reply | None:
        """The next turn; None when the context has no room for it."""
        ...

    async def snapshot(self, *, over: bool) -> str:
        """Digest of the sandbox after the turn's calls, where one is kept. `over`: the turn ends the episode."""
        ...

    async def recorded(self) -> None:
        """The turn has been recorded."""
        ...

    async def go_on(self, reply: Reply, turn: Turn) -> StopReason | None:
        """Show the policy the turn's results. A reason when that is impossible."""
        ...


async def play_turns(
    player: Player, record: Record, limits: EpisodeLimits, session: Session, settings: EpisodeSettings
) -> StopReason:
    """Play to the end. Raises EpisodeLost, HarnessFailure, TimeSpent and the errors of the player."""
    try:
        await player.begin()
        return await _play(player, record, limits, session, settings)
    except (TimeSpent, InferenceError):
        if not limits.written_away:
            raise
        return StopReason.TIME_LIMIT


async def _play(
    player: Player, record: Record, limits: EpisodeLimits, session: Session, settings: EpisodeSettings
) -> StopReason:
    while (reached := limits.reached()) is None:
        reply = await player.ask()
        if reply is None:
            if not record.turns:
                raise _no_room(limits)
            return StopReason.TOKEN_LIMIT
        limits.turns.used += 1
        results, tool_seconds, late = await run_tools(session, reply.calls, limits)
        record.spend("tools", tool_seconds)
        snapshot = await player.snapshot(over=reply.cut or late or not results or session.finished)
        if reply.error and not reply.cut:
            results = reply.refusals
        turn = Turn(
            index=len(record.turns),
            segment=reply.segment,
            text=reply.text,
            token_start=reply.token_start,
            token_end=reply.token_end,
            thinking_tokens=reply.thinking_tokens,
            asked=settings.asked(len(record.turns) + 1) if results and not session.finished else "",
            calls=reply.calls,
            results=results,
            generate_seconds=reply.seconds,
            tool_seconds=tool_seconds,
            snapshot=snapshot,
        )
        record.turns.append(turn)
        await player.recorded()
        refuse_infrastructure(results)
        if (ended := _ended(reply, results, limits, session, settings, late=late)) is not None:
            return ended
        if (ended := await player.go_on(reply, turn)) is not None:
            return ended
    if reached is StopReason.TOKEN_LIMIT and not record.turns:
        raise _no_room(limits)
    return reached


def _no_room(limits: EpisodeLimits) -> EpisodeLost:
    """A context that the opening prompt alone fills is a wrong setting: the policy had no turn."""
    used = f"has {limits.tokens.used} tokens" if limits.tokens.used else "is too long for the endpoint"
    return EpisodeLost(
        Cause.ENGINE_CONTEXT,
        f"the opening prompt {used} and leaves no room for a turn in max_context_tokens {limits.tokens.limit}: "
        "give the run or evaluation a longer context, or its tasks shorter instructions",
    )


def _ended(
    reply: Reply,
    results: Sequence[ToolResult],
    limits: EpisodeLimits,
    session: Session,
    settings: EpisodeSettings,
    *,
    late: bool,
) -> StopReason | None:
    """Why the episode ends with this turn, if it does."""
    if reply.cut:
        return StopReason.TIME_LIMIT if limits.written_away else StopReason.TOKEN_LIMIT
    if late:
        return StopReason.TIME_LIMIT
    if reply.error and settings.harness.end_on_malformed_call:
        return StopReason.MALFORMED_CALL
    if not results:
        return StopReason.NO_TOOL_CALL
    return StopReason.FINISHED if session.finished else None


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
        message = f"the episode's {limits.tools.limit:g} s for tool calls are used up"
        error = ToolError(kind=ToolErrorKind.TIMEOUT, message=message)
        results = tuple(ToolResult(call_id=call.id, output=f"error: {message}", error=error) for call in calls)
        return results, limits.tools.used - before, True


def refuse_infrastructure(results: Sequence[ToolResult]) -> None:
    """Raises EpisodeLost when a tool failed for reasons outside the policy."""
    lost = next((r.error for r in results if r.error and r.error.kind is ToolErrorKind.INFRASTRUCTURE), None)
    if lost is not None:
        raise EpisodeLost(Cause.TOOL_FAILED, f"a tool failed for reasons of its own: {lost.message}")
