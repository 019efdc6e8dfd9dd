"""An algorithm is how a group's rewards become advantages of its tokens, and which correction it prefers.

It acts where groups are made, on the rollout side; the trainer receives per-token streams and knows no names. All
losses have the form L = -(1/Z) Σ w·A·log π with Z constant; an algorithm with another normaliser says it as a factor
of a rollout's tokens (`GroupShape`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

OwnCorrection = Literal["none", "truncated", "clipped", "sequence"]


@dataclass(frozen=True, slots=True)
class GroupShape:
    """What normalisers look at."""

    policy_tokens: tuple[int, ...]
    """Tokens that the policy wrote, by rollout, over all of its segments."""
    divisor: float
    """Z."""
    groups_per_step: int
    group_size: int


def no_normaliser(shape: GroupShape) -> list[float]:
    """Every token weighs the same, however long its rollout is."""
    return [1.0] * len(shape.policy_tokens)


def by_rollout(shape: GroupShape) -> list[float]:
    """The mean over a rollout's tokens, then over the rollouts of the step: tokens of long rollouts weigh less."""
    rollouts = shape.groups_per_step * shape.group_size
    return [shape.divisor / (rollouts * max(1, tokens)) for tokens in shape.policy_tokens]


def by_group(shape: GroupShape) -> list[float]:
    """The mean over all tokens of a group, then over the groups of the step."""
    tokens = max(1, sum(shape.policy_tokens))
    return [shape.divisor / (shape.groups_per_step * tokens)] * len(shape.policy_tokens)


@dataclass(frozen=True, slots=True)
class Algorithm:
    name: str
    advantages: Callable[[Sequence[float]], list[float]]
    """One advantage a rollout from the group's rewards; all 0 when they are equal."""
    correction: OwnCorrection
    """What the setting `auto` of the importance correction means."""
    factors: Callable[[GroupShape], list[float]] = no_normaliser
    """By rollout, what its tokens' advantages are multiplied by."""


def standardised(rewards: Sequence[float]) -> list[float]:
    """(R - mean) / std, with the deviation of the group as a sample (G - 1)."""
    if len(rewards) < 2 or all(reward == rewards[0] for reward in rewards):
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]
