"""Guards on production sessions: compare a policy's rates of edits, questions and malformed calls with earlier ones.

Editing less can raise a reward that is based on edits. The reward does not show that; the rates do. A guard compares
the newest sessions with those of the previously served version and describes what moved. A run has the three rates; a
canary adds user feedback and waiting times.
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
    """Bounds of a canary; metrics without a bound are shown and end nothing."""

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
    min_sessions: int = Field(
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
    """Production statistics of a version."""

    rates: Rates
    rewards: Sequence[float]
    """Rewards of the turns that have one."""
    first_token_ms: Sequence[float]
    sessions: int
    good: int
    """Sessions with a positive signal."""
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
            deviations=guards.z_score,
            min_count=guards.min_turns,
        )
        for name, was, is_, bound, falls in (
            ("the share of turns that edit", before.edit, now.edit, guards.edit_drop, True),
            ("the share of turns that only ask", before.question, now.question, guards.question_rise, False),
            (
                "the share of turns with a malformed tool call",
                before.malformed,
                now.malformed,
                guards.malformed_rise,
                False,
            ),
        )
    ]


def broken(guards: Guards, before: Rates, now: Rates) -> list[str]:
    """Messages about rates that moved beyond their bound and beyond chance; none when there are too few turns."""
    return [row.why for row in moved(guards, before, now) if row.standing == "broken"]


def canary(guards: CanaryGuards, before: InUse, now: InUse) -> list[Row]:
    """All comparisons of a canary with the promoted version, each with its bound."""
    row = partial(compared, deviations=guards.z_score)
    return [
        *moved(guards, before.rates, now.rates),
        row(
            "the mean reward of a turn",
            Sample.mean(before.rewards),
            Sample.mean(now.rewards),
            falls=True,
            bound=guards.reward_drop,
            min_count=guards.min_turns,
            unit="points",
        ),
        row(
            "the median time to the first token",
            Sample.median(before.first_token_ms),
            Sample.median(now.first_token_ms),
            falls=False,
            bound=guards.first_token_rise,
            min_count=guards.min_turns,
            unit="ms",
            relative=True,
        ),
        row(
            "the share of sessions with a good signal",
            Sample.share(before.good / max(1, before.sessions), before.sessions),
            Sample.share(now.good / max(1, now.sessions), now.sessions),
            falls=True,
            bound=guards.good_drop,
            min_count=guards.min_sessions,
        ),
        row(
            "the share of sessions with a bad signal",
            Sample.share(before.bad / max(1, before.sessions), before.sessions),
            Sample.share(now.bad / max(1, now.sessions), now.sessions),
            falls=False,
            bound=guards.bad_rise,
            min_count=guards.min_sessions,
        ),
    ]
