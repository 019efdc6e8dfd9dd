"""Limits of an episode as objects: each defines what it counts, when it is reached and its stop reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandbox.harness.types import StopReason
from trainer.config import SamplingConfig
from trainer.config.auto import automatic

ANSWER_SECONDS = 2.0
"""An engine is asked to answer so long before the engine's time is over, with what it has sampled by then."""


@dataclass(slots=True)
class TurnLimit:
    limit: int
    used: int = 0

    def reached(self) -> bool:
        return self.used >= self.limit


@dataclass(slots=True)
class TokenLimit:
    """Tokens of the current context window, policy and observations together."""

    limit: int
    turn_limit: int
    used: int = 0

    def room(self) -> int:
        """Maximum tokens of the next turn; 0 when the window is full."""
        return max(0, min(self.turn_limit, self.limit - self.used))

    def reached(self) -> bool:
        return self.room() == 0


class TimeSpent(Exception):
    """A time limit was exhausted inside `TimeLimit.spending`."""


@dataclass(slots=True)
class TimeLimit:
    """Wall seconds for one side of an episode."""

    limit: float
    used: float = 0.0

    def reached(self) -> bool:
        return self.used >= self.limit

    def left(self) -> float:
        return max(0.0, self.limit - self.used)

    @asynccontextmanager
    async def spending(self) -> AsyncIterator[None]:
        """Count the time inside the block, and end the block when the limit is exhausted. Raises TimeSpent."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.left()) as net:
                yield
        except TimeoutError as error:
            if net.expired():
                raise TimeSpent(f"{self.limit:g} s are used up") from error
            raise
        finally:
            self.used += time.monotonic() - began


@dataclass(slots=True)
class EpisodeLimits:
    """Limits of one episode. Its wall time has two sides with separate limits, so that overruns are attributed: the
    policy's (`tools`) and the installation's (`machine`). Grading has limits of its own (`sandbox/grading`).
    """

    turns: TurnLimit
    tokens: TokenLimit
    tools: TimeLimit
    """The policy's tool calls, over all turns."""
    machine: TimeLimit
    """Sandbox start and engine answers."""
    answered: float = 0.0
    """The part of `machine` in which engines answered with tokens of the policy."""
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, sampling: SamplingConfig) -> EpisodeLimits:
        """Raises ValueError for automatic limits that nobody has derived."""
        if left := automatic(sampling):
            raise ValueError(f"sampling.{left[0]} is auto; derive it first (trainer.defaults.derive)")
        return cls(
            turns=TurnLimit(sampling.max_turns),
            tokens=TokenLimit(sampling.max_context_tokens, sampling.max_turn_tokens),
            tools=TimeLimit(sampling.episode_seconds),
            machine=TimeLimit(sampling.engine_seconds),
        )

    @property
    def wall_seconds(self) -> float:
        """Sum of both sides: the limit on everything between the start and the patch."""
        return self.tools.limit + self.machine.limit

    @property
    def written_away(self) -> bool:
        """Whether the policy's own words used up the engine's time: it answered with tokens for most of it. An engine that
        gave none for so long is at fault itself."""
        return self.machine.left() <= 2 * ANSWER_SECONDS and self.answered >= self.machine.limit / 2

    def reached(self) -> StopReason | None:
        """The first limit reached, if any."""
        if self.turns.reached():
            return StopReason.TURN_LIMIT
        if self.tokens.reached():
            return StopReason.TOKEN_LIMIT
        if self.tools.reached() or self.written_away:
            return StopReason.TIME_LIMIT
        return None

    def describe(self) -> tuple[str, ...]:
        return (
            f"turns<={self.turns.limit}",
            f"context_tokens<={self.tokens.limit}",
            f"turn_tokens<={self.tokens.turn_limit}",
            f"tool_seconds<={self.tools.limit:g}",
            f"engine_seconds<={self.machine.limit:g}",
        )
