import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms.advantage import group_advantages, is_zero_signal, token_streams
from trainer.types import Segment

REWARDS = st.lists(st.floats(-100, 100), min_size=1, max_size=16)


def test_is_reward_minus_mean_without_any_scaling():
    assert group_advantages([1.0, 0.0, 0.0, 1.0]) == [0.5, -0.5, -0.5, 0.5]


def test_small_gaps_stay_small():
    small, large = group_advantages([0.01, 0.0]), group_advantages([1.0, 0.0])
    assert small[0] * 100 == pytest.approx(large[0])


@given(REWARDS)
def test_advantages_sum_to_zero_and_keep_differences(rewards):
    advantages = group_advantages(rewards)
    assert sum(advantages) == pytest.approx(0.0, abs=1e-9)
    for i in range(len(rewards)):
        assert advantages[i] - advantages[0] == pytest.approx(rewards[i] - rewards[0], abs=1e-9)


@given(st.floats(-1e6, 1e6), st.integers(1, 16))
def test_equal_rewards_give_exact_zeros(reward, size):
    assert is_zero_signal([reward] * size)
    assert group_advantages([reward] * size) == [0.0] * size


def test_an_empty_group_is_refused():
    with pytest.raises(ValueError, match="without rewards"):
        group_advantages([])


def test_one_advantage_for_every_policy_token_of_every_segment():
    segments = [
        Segment(tokens=[1, 2, 3], logprobs=[0.0, -0.5, 0.0], loss_mask=[0, 1, 0], versions=[-1, 4, -1]),
        Segment(tokens=[7, 8], logprobs=[0.0, -0.1], loss_mask=[0, 1], versions=[-1, 5]),
        Segment(tokens=[9], logprobs=[0.0], loss_mask=[0], versions=[-1]),
    ]
    streams = token_streams(segments, -0.25)
    assert [s.advantages for s in streams] == [[0.0, -0.25, 0.0], [0.0, -0.25]]
    assert [s.sampler_logprobs for s in streams] == [[0.0, -0.5, 0.0], [0.0, -0.1]]
