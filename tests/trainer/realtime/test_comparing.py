"""Two sides of a measure: what counts as moved, and what is chance."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.realtime.comparing import Row, Sample, compared
from trainer.realtime.guards import CanaryGuards, InUse, Rates, canary

NUMBERS = st.lists(st.floats(-1000, 1000), min_size=1, max_size=60)


def row(before: Sample, now: Sample, *, bound: float | None = 0.1, min_count: int = 10, relative: bool = False) -> Row:
    return compared("it", before, now, falls=True, bound=bound, deviations=2.0, min_count=min_count, relative=relative)


def use(*, rewards: list[float], waits: list[float], good: int = 0, bad: int = 0) -> InUse:
    return InUse(Rates(len(waits), 0.5, 0.1, 0.0), rewards, waits, len(waits), good, bad)


@pytest.mark.parametrize(
    ("before", "now", "standing"),
    [
        (Sample.share(0.5, 9), Sample.share(0.0, 900), "little"),
        (Sample.share(0.5, 900), Sample.share(0.0, 0), "little"),
        (Sample.share(0.5, 12), Sample.share(0.3, 12), "little"),
        (Sample.share(0.5, 900), Sample.share(0.3, 900), "broken"),
        (Sample.share(0.5, 900), Sample.share(0.45, 900), "holds"),
        (Sample.share(0.5, 900), Sample.share(0.9, 900), "holds"),
    ],
)
def test_a_bound_is_broken_beyond_chance_only(before: Sample, now: Sample, standing: str) -> None:
    found = row(before, now)
    assert found.standing == standing
    assert bool(found.why) == (standing == "broken")


def test_one_observation_says_nothing_and_no_bound_ends_nothing() -> None:
    assert row(Sample.mean([1.0]), Sample.mean([0.0]), min_count=1).standing == "little"
    assert row(Sample.share(1.0, 900), Sample.share(0.0, 900), bound=None).standing == "unbound"


@given(NUMBERS)
def test_mean_and_median_are_those_of_the_library(values: list[float]) -> None:
    assert Sample.mean(values).value == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert Sample.median(values).value == pytest.approx(statistics.median(values), abs=1e-9)
    assert Sample.median(values).error >= 0
    if len(values) > 1:
        assert Sample.mean(values).error == pytest.approx(statistics.stdev(values) / len(values) ** 0.5, abs=1e-6)


def test_one_slow_answer_does_not_move_the_median() -> None:
    waits = [30.0 + n % 7 for n in range(100)]
    before = use(rewards=[], waits=waits)
    guards = CanaryGuards(first_token_rise=0.5)
    assert times(canary(guards, before, use(rewards=[], waits=[*waits[1:], 1e6]))).standing == "holds"
    slow = times(canary(guards, before, use(rewards=[], waits=[2 * wait for wait in waits])))
    assert slow.standing == "broken"
    assert slow.why == "the median time to the first token rose from 33 ms to 66 ms; 50% are allowed"


def test_signals_and_reward_are_shown_without_a_bound_and_guarded_with_one() -> None:
    before = use(rewards=[1.0, 0.5] * 40, waits=[30.0] * 80, good=60, bad=4)
    now = use(rewards=[0.0, -0.5] * 40, waits=[30.0] * 80, good=20, bad=50)
    shown = {found.name: found.standing for found in canary(CanaryGuards(), before, now)}
    assert [name for name, standing in shown.items() if standing != "unbound"] == [
        "the share of turns that edit",
        "the share of turns that only ask",
        "the share of turns with a malformed tool call",
    ]
    guards = CanaryGuards(reward_drop=0.2, good_drop=0.1, bad_rise=0.1, min_sessions=80)
    assert [found.why for found in canary(guards, before, now) if found.why] == [
        "the mean reward of a turn fell from 0.750 to -0.250; 0.2 is allowed",
        "the share of sessions with a good signal fell from 75.0% to 25.0%; 10% are allowed",
        "the share of sessions with a bad signal rose from 5.0% to 62.5%; 10% are allowed",
    ]


def times(rows: list[Row]) -> Row:
    return next(found for found in rows if "first token" in found.name)
