"""Guards on real sessions: how often a policy edits, asks and breaks calls, beside how often it did before.

A reward from edits can be raised by editing less. The reward does not show that; the rates do. A guard compares the newest
sessions with those of the version that was served before, and says in words what moved. A run has the three rates; a canary
also what users said of it and how long they waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import Field

from trainer.config import Guards
from trainer.realtime.comparing import Row, Sample, compared
from trainer.realtime.reading import TurnFacts


class CanaryGuards(Guards):
    """Bounds of a canary; what has none is shown and ends nothing."""

    reward_drop: float | None = Field(
        default=None, gt=0, le=100, description="Largest fall of the mean reward of a turn; empty: only shown"
    )
    first_token_rise: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="Largest rise of the median time to the first token, as a share of it; empty: only shown",
    )
    good_drop: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Largest fall of the share of sessions with a good signal; empty: only shown",
    )
    bad_rise: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Largest rise of the share of sessions with a bad signal; empty: only shown",
    )
    least_sessions: int = Field(
        default=20, ge=1, le=1_000_000, description="Sessions on each side before a guard on signals judges"
    )


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


@dataclass(frozen=True, slots=True)
class InUse:
    """What a version did for its users."""

    rates: Rates
    rewards: Sequence[float]
    """Of the turns that have one."""
    first_token_ms: Sequence[float]
    sessions: int
    good: int
    """Sessions with a good signal."""
    bad: int


def moved(guards: Guards, before: Rates, now: Rates) -> list[Row]:
    """The three rates, each with its bound."""
    return [
        compared(
            name,
            Sample.share(was, before.turns),
            Sample.share(is_, now.turns),
            falls=falls,
            bound=bound,
            deviations=guards.deviations,
            least=guards.least_turns,
        )
        for name, was, is_, bound, falls in (
            ("the share of turns that edit", before.edit, now.edit, guards.edit_drop, True),
            ("the share of turns that only ask", before.question, now.question, guards.question_rise, False),
            ("the share of turns with a broken call", before.malformed, now.malformed, guards.malformed_rise, False),
        )
    ]


def broken(guards: Guards, before: Rates, now: Rates) -> list[str]:
    """What moved further than allowed, beyond chance, in words. Too few turns: nothing is said."""
    return [row.why for row in moved(guards, before, now) if row.standing == "broken"]


def canary(guards: CanaryGuards, before: InUse, now: InUse) -> list[Row]:
    """Everything that is known of a canary beside the promoted version, each with its bound."""
    row = partial(compared, deviations=guards.deviations)
    return [
        *moved(guards, before.rates, now.rates),
        row(
            "the mean reward of a turn",
            Sample.mean(before.rewards),
            Sample.mean(now.rewards),
            falls=True,
            bound=guards.reward_drop,
            least=guards.least_turns,
            unit="points",
        ),
        row(
            "the median time to the first token",
            Sample.median(before.first_token_ms),
            Sample.median(now.first_token_ms),
            falls=False,
            bound=guards.first_token_rise,
            least=guards.least_turns,
            unit="ms",
            relative=True,
        ),
        row(
            "the share of sessions with a good signal",
            Sample.share(before.good / max(1, before.sessions), before.sessions),
            Sample.share(now.good / max(1, now.sessions), now.sessions),
            falls=True,
            bound=guards.good_drop,
            least=guards.least_sessions,
        ),
        row(
            "the share of sessions with a bad signal",
            Sample.share(before.bad / max(1, before.sessions), before.sessions),
            Sample.share(now.bad / max(1, now.sessions), now.sessions),
            falls=False,
            bound=guards.bad_rise,
            least=guards.least_sessions,
        ),
    ]
