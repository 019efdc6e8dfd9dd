"""Algorithm interface: maps a group's rewards to token advantages, and selects a default correction.

Algorithms run where groups are formed, on the rollout side. The trainer receives per-token streams and knows no
algorithm names. All losses have the form L = -(1/Z) Σ w·A·log π with constant Z. An algorithm with another normaliser
expresses it as a factor on a rollout's tokens (`GroupShape`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

OwnCorrection = Literal["none", "truncated", "clipped", "sequence"]


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Inputs of the normalisers."""

    output_tokens: tuple[int, ...]
    """Number of policy tokens by rollout, over all of its segments."""
    divisor: float
    """The divisor Z."""
    groups_per_step: int
    group_size: int


def no_normaliser(shape: GroupShape) -> list[float]:
    """Equal weight for every token, whatever its rollout's length."""
    return [1.0] * len(shape.output_tokens)


def by_rollout(shape: GroupShape) -> list[float]:
    """Mean over a rollout's tokens, then over the step's rollouts; tokens of long rollouts weigh less."""
    rollouts = shape.groups_per_step * shape.group_size
    return [shape.divisor / (rollouts * max(1, tokens)) for tokens in shape.output_tokens]


def by_group(shape: GroupShape) -> list[float]:
    """Mean over all tokens of a group, then over the step's groups."""
    tokens = max(1, sum(shape.output_tokens))
    return [shape.divisor / (shape.groups_per_step * tokens)] * len(shape.output_tokens)


@dataclass(frozen=True, slots=True)
class Algorithm:
    name: str
    advantages: Callable[[Sequence[float]], list[float]]
    """One advantage per rollout from the group's rewards; all 0 when they are equal."""
    correction: OwnCorrection
    """Importance correction that the setting `auto` selects."""
    factors: Callable[[GroupShape], list[float]] = no_normaliser
    """Factor on the advantages of each rollout's tokens."""


def standardised(rewards: Sequence[float]) -> list[float]:
    """(R - mean) / std, with the group's sample standard deviation (G - 1)."""
    if len(rewards) < 2 or all(reward == rewards[0] for reward in rewards):
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]
