"""Episodes of a policy behind an OpenAI-compatible endpoint: the same sandbox, tools, limits and grading.

The transcript is the list of messages sent to the endpoint. There are no tokens to train on, only the endpoint's
counts. Endpoint failures are infrastructure; the model's turns are graded.
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
from trainer.config import SamplingConfig
from trainer.inference.chat import ChatClient, ChatReply, Counted, TranscriptTooLong
from trainer.rollouts.ending import Store, graded
from trainer.rollouts.episode import agent_limits
from trainer.rollouts.limits import EpisodeLimits
from trainer.rollouts.losses import Losses, Scene
from trainer.rollouts.record import Record
from trainer.rollouts.turns import EpisodeSettings, Reply, play_turns
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
    *, task: TaskSpec, sample: int, settings: EpisodeSettings, services: ChatServices, losses: Losses | None = None
) -> Trajectory:
    """Run one episode to a graded, scored trajectory. Never raises for policy or infrastructure faults; may be
    cancelled. `losses` are those of the earlier attempts at the same rollout."""
    record = Record.begin(task, None)
    limits = EpisodeLimits.of(settings.sampling)
    scene = Scene(services.backend, losses or Losses())

    async def act() -> StopReason:
        started = time.monotonic()
        profile = get_profile(settings.harness.profile)
        environment = services.environments.spec(task.environment, profile.machine)
        async with limits.machine.spending():
            fresh = await scene.start(environment, agent_limits(limits), None)
        async with released(fresh) as sandbox:
            session = scene.session = Session(sandbox, profile)
            record.schema_hash = session.schema_hash
            record.spend("start", time.monotonic() - started)
            player = ChatPlayer(record, limits, session, settings.sampling, services.client)
            stop = await play_turns(player, record, limits, session, settings)
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
        scene=scene,
        store=services.store,
    )


class ChatPlayer:
    """A policy behind an endpoint (`turns.Player`); its transcript is the list of messages."""

    def __init__(
        self, record: Record, limits: EpisodeLimits, session: Session, sampling: SamplingConfig, client: ChatClient
    ) -> None:
        self.record, self.limits, self.session, self.sampling, self.client = record, limits, session, sampling, client
        self.messages: list[dict[str, Any]] = list(record.messages)
        self._said: dict[str, Any] = {}

    async def begin(self) -> None:
        """Nothing: the list of messages is complete."""

    async def ask(self) -> Reply | None:
        began, before = time.monotonic(), self.limits.machine.used
        try:
            async with self.limits.machine.spending():
                reply = await self.client.ask(
                    self.messages,
                    self.session.schemas(),
                    max_tokens=self.limits.tokens.room(),
                    temperature=self.sampling.temperature,
                    seconds=max(1.0, self.limits.machine.left()),
                )
        except TranscriptTooLong:
            return None
        seconds = time.monotonic() - began
        self.record.spend("generate", seconds)
        self.limits.answered += self.limits.machine.used - before if reply.counted.written else 0.0
        self.record.usage = _added(self.record.usage, reply.counted)
        self.limits.tokens.used = self.record.usage.window
        self._said = reply.message
        cut = reply.finish == "length"
        return Reply(
            text=reply.text,
            calls=() if cut else reply.calls,
            seconds=seconds,
            cut=cut,
            error=reply.error,
            refusals=_malformed(reply) if reply.error else (),
            thinking_tokens=reply.counted.thinking,
        )

    async def snapshot(self, *, over: bool) -> str:
        """Such episodes are not resumed."""
        return ""

    async def recorded(self) -> None:
        """Nobody watches such episodes."""

    async def go_on(self, reply: Reply, turn: Turn) -> StopReason | None:
        self.messages += [self._said, *_answers(turn.results)]
        if turn.asked:
            self.messages.append({"role": "user", "content": turn.asked})
        return None


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
