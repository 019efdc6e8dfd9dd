"""Group advantages: A_i = R_i - mean(R). No division by the standard deviation, no length normaliser.

Dividing by the group's standard deviation would amplify groups with negligible differences (a length penalty of 0.01
would count as much as a failed test). A length normaliser would favour long failures.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.types import Segment, TrainSample


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """One advantage per rollout. Exactly 0.0 for all when the rewards are equal (whatever the mean's rounding)."""
    if not rewards:
        raise ValueError("a group without rewards has no advantages")
    if is_zero_signal(rewards):
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def is_zero_signal(rewards: Sequence[float]) -> bool:
    """Whether all rollouts have the same reward, so that the group carries no signal. Such groups appear in the
    metrics."""
    return all(reward == rewards[0] for reward in rewards)


def token_streams(segments: Sequence[Segment], advantage: float) -> list[TrainSample]:
    """The trainer's view of one rollout: its single advantage on every policy token of every segment."""
    return [
        TrainSample(
            tokens=list(segment.tokens),
            loss_mask=list(segment.loss_mask),
            sampler_logprobs=list(segment.logprobs),
            advantages=[advantage if mask else 0.0 for mask in segment.loss_mask],
            experts=segment.experts,
            support=segment.support,
        )
        for segment in segments
        if any(segment.loss_mask)
    ]
