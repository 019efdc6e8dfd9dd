"""Episodes of a policy behind an OpenAI-compatible endpoint: the same sandbox, tools, limits and grading.

The transcript is the list of messages sent to the endpoint. There are no tokens to train on, only the endpoint's
counts.
Endpoint failures are infrastructure; the model's turns are graded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.backends.base import Backend, released
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import StopReason, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from trainer.inference.chat import ChatClient, ChatReply, Counted, TranscriptTooLong
from trainer.inference.contract import InferenceError
from trainer.rollouts.ending import Store, graded
from trainer.rollouts.episode import EpisodeSettings, agent_limits, refuse_infrastructure, run_tools
from trainer.rollouts.limits import EpisodeLimits, TimeSpent
from trainer.rollouts.record import Record
from trainer.types import Trajectory, Turn, Usage


@dataclass(frozen=True, slots=True)
class ChatServices:
    """Services for such episodes."""

    client: ChatClient
    backend: Backend
    environments: EnvironmentStore
    slots: asyncio.Semaphore
    store: Store | None = None


async def run_chat_episode(
    *, task: TaskSpec, sample: int, settings: EpisodeSettings, services: ChatServices
) -> Trajectory:
    """Run one episode to a graded, scored trajectory. Never raises for policy or infrastructure faults; may be
    cancelled."""
    record = Record.begin(task, None)
    limits = EpisodeLimits.of(settings.sampling)

    async def act() -> StopReason:
        started = time.monotonic()
        profile = get_profile(settings.harness.profile)
        environment = services.environments.spec(task.environment, profile.machine)
        async with limits.machine.spending():
            fresh = await services.backend.start(environment, limits=agent_limits(limits), snapshot=None)
        async with released(fresh) as sandbox:
            session = Session(sandbox, profile)
            record.schema_hash = session.schema_hash
            record.spend("start", time.monotonic() - started)
            try:
                stop = await _turns(record, limits, session, settings, services.client)
            except (TimeSpent, InferenceError):
                if not limits.written_away:
                    raise
                stop = StopReason.TIME_LIMIT
            record.patch = await sandbox.diff()
        return stop

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


async def _turns(
    record: Record, limits: EpisodeLimits, session: Session, settings: EpisodeSettings, client: ChatClient
) -> StopReason:
    messages: list[dict[str, Any]] = list(record.messages)
    while (reached := limits.reached()) is None:
        began, before = time.monotonic(), limits.machine.used
        try:
            async with limits.machine.spending():
                reply = await client.ask(
                    messages,
                    session.schemas(),
                    max_tokens=limits.tokens.room(),
                    temperature=settings.sampling.temperature,
                    seconds=max(1.0, limits.machine.left()),
                )
        except TranscriptTooLong:
            return StopReason.TOKEN_LIMIT
        generate_seconds = time.monotonic() - began
        record.spend("generate", generate_seconds)
        limits.answered += limits.machine.used - before if reply.counted.written else 0.0
        record.usage = _added(record.usage, reply.counted)
        limits.tokens.used = record.usage.window
        limits.turns.used += 1
        cut = reply.finish == "length"
        results, tool_seconds, late = await run_tools(session, () if cut else reply.calls, limits)
        record.spend("tools", tool_seconds)
        if reply.error and not cut:
            results = _malformed(reply)
        asked = settings.asked(len(record.turns) + 1) if results and not session.finished else ""
        record.turns.append(
            Turn(
                index=len(record.turns),
                text=reply.text,
                token_start=0,
                token_end=0,
                thinking_tokens=reply.counted.thinking,
                asked=asked,
                calls=() if cut else reply.calls,
                results=results,
                generate_seconds=generate_seconds,
                tool_seconds=tool_seconds,
            )
        )
        refuse_infrastructure(results)
        if cut:
            return StopReason.TOKEN_LIMIT
        if late:
            return StopReason.TIME_LIMIT
        if reply.error and settings.harness.end_on_malformed_call:
            return StopReason.MALFORMED_CALL
        if not results:
            return StopReason.NO_TOOL_CALL
        if session.finished:
            return StopReason.FINISHED
        messages += [reply.message, *_answers(results)]
        if asked:
            messages.append({"role": "user", "content": asked})
    return reached


def _malformed(reply: ChatReply) -> tuple[ToolResult, ...]:
    """Give every call of the turn the same answer; an endpoint rejects a transcript with an unanswered call."""
    error = ToolError(kind=ToolErrorKind.MALFORMED_CALL, message=reply.error or "")
    return tuple(
        ToolResult(call_id=str(call["id"]), output=f"error: {reply.error}", error=error)
        for call in reply.message["tool_calls"]
    )


def _answers(results: Sequence[ToolResult]) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": result.call_id, "content": result.output} for result in results]


def _added(before: Usage | None, counted: Counted) -> Usage:
    old = before or Usage(read=0, cached=0, written=0, thinking=0, window=0)
    return Usage(
        read=old.read + counted.read,
        cached=old.cached + counted.cached,
        written=old.written + counted.written,
        thinking=old.thinking + counted.thinking,
        window=counted.read + counted.written,
    )
