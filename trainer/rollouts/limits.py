"""Limits of an episode as objects: each knows what it counts, when it is reached and which stop reason it means."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sandbox.harness.types import StopReason
from trainer.config import SamplingConfig


@dataclass(slots=True)
class TurnLimit:
    most: int
    used: int = 0

    def reached(self) -> bool:
        return self.used >= self.most


@dataclass(slots=True)
class TokenLimit:
    """Tokens of the current context window, policy and observations together."""

    most: int
    turn_most: int
    used: int = 0

    def room(self) -> int:
        """Most tokens that the next turn may have; 0 when the window is full."""
        return max(0, min(self.turn_most, self.most - self.used))

    def reached(self) -> bool:
        return self.room() == 0


@dataclass(slots=True)
class TimeLimit:
    """Wall seconds of the tool calls. Waiting for the engine is not the policy's doing and is bounded apart."""

    most: float
    used: float = 0.0

    def reached(self) -> bool:
        return self.used >= self.most


@dataclass(slots=True)
class EpisodeLimits:
    turns: TurnLimit
    tokens: TokenLimit
    tools: TimeLimit
    wall_seconds: float
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, sampling: SamplingConfig) -> EpisodeLimits:
        return cls(
            turns=TurnLimit(sampling.max_turns),
            tokens=TokenLimit(sampling.max_context_tokens, sampling.max_turn_tokens),
            tools=TimeLimit(sampling.episode_seconds),
            wall_seconds=sampling.episode_seconds + sampling.engine_seconds,
        )

    def reached(self) -> StopReason | None:
        """The first limit that is reached, if any."""
        if self.turns.reached():
            return StopReason.TURN_LIMIT
        if self.tokens.reached():
            return StopReason.TOKEN_LIMIT
        if self.tools.reached():
            return StopReason.TIME_LIMIT
        return None

    def wall_left(self) -> float:
        """Seconds until the episode counts as lost to infrastructure: the engine was too slow."""
        return self.wall_seconds - (time.monotonic() - self.started)

    def describe(self) -> tuple[str, ...]:
        return (
            f"turns<={self.turns.most}",
            f"context_tokens<={self.tokens.most}",
            f"turn_tokens<={self.tokens.turn_most}",
            f"tool_seconds<={self.tools.most:g}",
            f"wall_seconds<={self.wall_seconds:g}",
        )
