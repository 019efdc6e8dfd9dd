import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.rollouts.make import trajectory
from trainer.config import LengthWeights, RewardConfig
from trainer.rewards.parts.length import LengthInputs, effort, length, length_cost, weighted

VECTORS = [
    (0.5, 100, 82.8427),
    (0.5, 1000, 463.325),
    (0.5, 10000, 1809.9751),
    (1.0, 100, 69.3147),
    (1.0, 1000, 239.7895),
    (1.0, 10000, 461.5121),
    (2.0, 100, 50.0),
    (2.0, 1000, 90.9091),
    (2.0, 10000, 99.0099),
]


@pytest.mark.parametrize(("q", "x", "expected"), VECTORS)
def test_published_form_at_k_one_hundredth(q, x, expected):
    assert length_cost(x, k=0.01, q=q) == pytest.approx(expected, abs=1e-4)


@given(st.floats(0, 1e5), st.floats(1e-4, 1.0), st.floats(0, 3))
def test_starts_at_zero_and_rises_concavely(x, k, q):
    assert length_cost(0.0, k=k, q=q) == 0.0
    low, mid, high = (length_cost(v, k=k, q=q) for v in (x, x + 1.0, x + 2.0))
    assert low <= mid <= high
    assert mid - low >= high - mid - 1e-6 * max(1.0, high)


@given(st.floats(1e-3, 1.0), st.floats(0, 3))
def test_slope_at_zero_is_one(k, q):
    step = 1e-7 / k
    assert length_cost(step, k=k, q=q) / step == pytest.approx(1.0, rel=1e-4)


@given(st.floats(0, 1e5), st.floats(1e-4, 1.0))
def test_q_zero_is_linear_and_q_one_is_the_limit(x, k):
    assert length_cost(x, k=k, q=0.0) == pytest.approx(x, rel=1e-9, abs=1e-9)
    for near in (1.0 - 1e-9, 1.0 + 1e-9):
        assert length_cost(x, k=k, q=near) == pytest.approx(length_cost(x, k=k, q=1.0), rel=1e-6, abs=1e-9)


def test_q_above_one_is_bounded():
    assert length_cost(1e12, k=0.01, q=2.0) < 1 / (0.01 * (2.0 - 1.0)) + 1e-9


@pytest.mark.parametrize("bad", [{"x": -1, "k": 0.1, "q": 1}, {"x": 1, "k": 0, "q": 1}, {"x": 1, "k": 0.1, "q": -1}])
def test_nonsense_is_refused(bad):
    with pytest.raises(ValueError, match="length cost"):
        length_cost(bad["x"], k=bad["k"], q=bad["q"])


def test_six_inputs_count_each_token_once():
    parts = effort(trajectory())
    assert parts == LengthInputs(thinking_tokens=1, calling_tokens=3, output_tokens=5, final_tokens=2, calls=2, turns=2)


def test_parallel_calls_cost_less_than_turns_by_default():
    weights = LengthWeights()
    together = LengthInputs(0, 20, 40, 0, calls=2, turns=1)
    apart = LengthInputs(0, 20, 40, 0, calls=2, turns=2)
    assert weighted(together, weights) < weighted(apart, weights)


def test_part_is_minus_c_of_the_weighted_sum():
    config = RewardConfig(
        length_coefficient=0.1,
        length_k=0.01,
        length_q=1.0,
        length_weights=LengthWeights(
            thinking_tokens=1, calling_tokens=2, output_tokens=3, final_tokens=4, calls=5, turns=6
        ),
    )
    part = length(trajectory(), config)
    x = 1 * 1 + 3 * 2 + 5 * 3 + 2 * 4 + 2 * 5 + 2 * 6
    assert part.value == pytest.approx(-math.log1p(0.01 * x) / 0.01)
    assert part.weight == 0.1
    assert part.detail["x"] == x


def test_off_without_a_coefficient():
    assert length(trajectory(), RewardConfig(length_coefficient=0.0)) is None
