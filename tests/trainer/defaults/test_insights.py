"""What a run's metrics say about why it learns little, and that a run that learns is left alone."""

from __future__ import annotations

import pytest

from trainer.config import RLConfig
from trainer.defaults.insights import insights, untrained

LEARNS = {
    "groups/zero_signal": 0.3,
    "groups/solved_none": 0.2,
    "groups/solved_all": 0.1,
    "truncated": 0.1,
    "calls/mean": 4.0,
    "policy/entropy": 0.4,
}


def found(*steps: dict[str, float]) -> dict[str, str]:
    return {one.key: one.remedy for one in insights(steps, RLConfig())}


def test_a_run_that_learns_is_left_alone() -> None:
    assert found(*[LEARNS] * 8) == {}


@pytest.mark.parametrize(
    ("changes", "key", "remedy"),
    [
        ({"groups/zero_signal": 1.0, "groups/solved_none": 1.0}, "zero-signal", "run SFT first"),
        ({"groups/zero_signal": 0.9, "groups/solved_none": 0.3}, "zero-signal", "harder tasks"),
        ({"truncated": 0.8, "stop/token_limit": 0.7, "stop/turn_limit": 0.1}, "truncated", "max_context_tokens"),
        ({"truncated": 0.8, "stop/turn_limit": 0.8}, "truncated", "max_turns"),
        ({"groups/zero_signal": 0.9, "groups/solved_all": 0.9}, "saturated", "harder ones"),
        ({"calls/mean": 0.0}, "no-calls", "template"),
    ],
)
def test_each_reason_has_its_remedy(changes: dict[str, float], key: str, remedy: str) -> None:
    told = found(*[LEARNS | changes] * 3)
    assert list(told) == [key] and remedy in told[key]


def test_one_odd_step_is_no_trend() -> None:
    assert found(LEARNS, LEARNS, LEARNS | {"groups/zero_signal": 1.0}) == {}
    assert found(*[LEARNS | {"groups/zero_signal": 1.0}] * 2) == {}


def test_entropy_that_collapses_is_told_and_a_slow_fall_is_not() -> None:
    fall = [LEARNS | {"policy/entropy": value} for value in (0.4, 0.4, 0.4, 0.1, 0.1, 0.1)]
    assert list(found(*fall)) == ["entropy-collapse"]
    assert found(*[LEARNS | {"policy/entropy": value} for value in (0.4, 0.4, 0.4, 0.2, 0.2, 0.2)]) == {}


def test_a_run_whose_gradients_were_all_zero_trained_nothing() -> None:
    dead = LEARNS | {"groups/solved_none": 1.0, "truncated": 0.9, "stop/token_limit": 0.9}
    nothing = untrained([dead] * 3, max_grad_norm=0.0)
    assert nothing is not None and "no rollout passed" in nothing.message and "max_context_tokens" in nothing.remedy
    assert untrained([dead] * 3, max_grad_norm=0.1) is None and untrained([], max_grad_norm=None) is None
