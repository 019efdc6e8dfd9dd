"""RLOO (arXiv 2402.14740): REINFORCE with the mean of the other rollouts' rewards as the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.algorithms.advantage import group_advantages
from trainer.algorithms.base import Algorithm


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """R_i - mean of the others = G / (G - 1) · (R_i - mean of all)."""
    size = len(rewards)
    return [advantage * size / max(1, size - 1) for advantage in group_advantages(rewards)]


RLOO = Algorithm("rloo", advantages=leave_one_out, correction="none")
