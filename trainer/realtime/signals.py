"""User signals after the policy's answers, and their rewards.

Cursor has not published its signal weights. These weights are ours; the signs follow what is published: malformed calls
are negative examples, and a reward for edits alone teaches the policy to ask instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainer.realtime.reading import TurnFacts
from trainer.types import RewardPart

SignalKind = Literal["accept", "reject", "edit_kept", "dissatisfied", "latency"]


class Signal(BaseModel):
    """`turn` is the turn concerned (from 0); None is the whole session. `value` is the share still present for
    edit_kept, seconds for latency, else 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: SignalKind
    turn: int | None = Field(default=None, ge=0, le=100_000)
    value: float = Field(default=1.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _share(self) -> Signal:
        if self.kind != "latency" and self.value > 1:
            raise ValueError(f"value={self.value}: a share lies between 0 and 1 (only latency is in seconds)")
        return self


class SignalReward(BaseModel):
    """Signal weights. A turn's reward is the sum over signals about the turn and about its session."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accept: float = Field(default=1.0, ge=-10, le=10, description="The user took the change")
    reject: float = Field(default=-1.0, ge=-10, le=10, description="The user threw the change away")
    edit_kept: float = Field(default=0.5, ge=-10, le=10, description="Times the share that is still there later")
    dissatisfied: float = Field(default=-0.5, ge=-10, le=10, description="The next message says that it was wrong")
    latency: float = Field(default=0.0, ge=-10, le=0, description="For each second beyond latency_free")
    latency_free: float = Field(default=10.0, ge=0, allow_inf_nan=False, description="Seconds that cost nothing")
    malformed: float = Field(default=-1.0, ge=-10, lt=0, description="A call that does not parse or fits no tool")
    question: float = Field(default=-0.25, ge=-10, le=10, description="A turn that asks instead of doing something")

    def parts(self, facts: Sequence[TurnFacts], signals: Sequence[Signal]) -> list[list[RewardPart]]:
        """Reward parts of each turn. A turn without parts has no reward, because no signal concerns it."""
        return [self.of_turn(fact, [s for s in signals if s.turn in (None, index)]) for index, fact in enumerate(facts)]

    def of_turn(self, fact: TurnFacts, signals: Sequence[Signal]) -> list[RewardPart]:
        """Reward parts of one turn, from signals about the turn and about its session."""
        found = [part for signal in sorted(signals, key=lambda s: s.turn is not None) if (part := self._part(signal))]
        if fact.malformed:
            found.append(RewardPart(name="malformed", value=1.0, weight=self.malformed))
        if fact.question:
            found.append(RewardPart(name="question", value=1.0, weight=self.question))
        return found

    def _part(self, signal: Signal) -> RewardPart | None:
        value = max(0.0, signal.value - self.latency_free) if signal.kind == "latency" else signal.value
        weight = float(getattr(self, signal.kind))
        if signal.kind == "latency" and (weight == 0 or value == 0):
            return None
        return RewardPart(name=signal.kind, value=value, weight=weight)


def total(parts: Sequence[RewardPart]) -> float:
    return math.fsum(part.value * part.weight for part in parts)
