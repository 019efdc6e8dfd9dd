"""Guards of a run on real sessions: how often the policy edits, asks and breaks calls, beside how often it did before.

A reward from edits can be raised by editing less. The reward does not show that; the rates do. A guard compares the newest
sessions with those of the version that the run started from, and says in words what moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from trainer.realtime.reading import TurnFacts


class Guards(BaseModel):
    """Bounds on how far the rates may move, in shares of turns. `action` is what a broken bound does to a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    edit_drop: float = Field(default=0.15, gt=0, le=1, description="Largest fall of the share of turns that edit")
    question_rise: float = Field(
        default=0.15, gt=0, le=1, description="Largest rise of the share of turns that only ask"
    )
    malformed_rise: float = Field(default=0.05, gt=0, le=1, description="Largest rise of the share of broken calls")
    least_turns: int = Field(default=50, ge=1, description="Turns on each side before a guard judges")
    action: Literal["stop", "alert"] = Field(default="stop", description="Stop the run, or only raise an alert")


@dataclass(frozen=True, slots=True)
class Rates:
    turns: int
    edit: float
    question: float
    malformed: float

    @classmethod
    def of(cls, facts: Sequence[TurnFacts]) -> Rates:
        turns = len(facts)
        return cls(
            turns,
            sum(fact.edits > 0 for fact in facts) / max(1, turns),
            sum(fact.question for fact in facts) / max(1, turns),
            sum(bool(fact.malformed) for fact in facts) / max(1, turns),
        )


def broken(guards: Guards, before: Rates, now: Rates) -> list[str]:
    """What moved further than allowed, beyond chance (two standard errors), in words. Too few turns: nothing is said."""
    if min(before.turns, now.turns) < guards.least_turns:
        return []
    found = []
    for name, was, is_, bound, sign in (
        ("turns that edit", before.edit, now.edit, guards.edit_drop, -1),
        ("turns that only ask", before.question, now.question, guards.question_rise, 1),
        ("turns with a broken call", before.malformed, now.malformed, guards.malformed_rise, 1),
    ):
        moved = sign * (is_ - was)
        noise = math.sqrt(was * (1 - was) / before.turns + is_ * (1 - is_) / now.turns)
        if moved > bound and moved > 2 * noise:
            word = "fell" if sign < 0 else "rose"
            found.append(f"the share of {name} {word} from {was:.1%} to {is_:.1%}; {bound:.0%} are allowed")
    return found
