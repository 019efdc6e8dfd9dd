"""Algorithms by name, one file each, and the streams that they make of a group."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.config import ObjectiveConfig, RLConfig
from trainer.learning.advantage import token_streams
from trainer.learning.algorithms.base import Algorithm, GroupShape
from trainer.learning.algorithms.cispo import CISPO
from trainer.learning.algorithms.composer import COMPOSER
from trainer.learning.algorithms.dr_grpo import DR_GRPO
from trainer.learning.algorithms.grpo import GRPO
from trainer.learning.algorithms.gspo import GSPO
from trainer.learning.algorithms.rloo import RLOO
from trainer.learning.correction import Correction, build_correction
from trainer.rollouts.types import Segment, TrainSample

ALGORITHMS = {algorithm.name: algorithm for algorithm in (COMPOSER, GRPO, DR_GRPO, RLOO, GSPO, CISPO)}


def group_streams(
    rewards: Sequence[float], rollouts: Sequence[Sequence[Segment]], config: RLConfig
) -> list[TrainSample]:
    """Per-token streams of a group: `rewards[i]` is that of the rollout with the segments `rollouts[i]`.

    One reward and one advantage for every policy token of every segment of a rollout.
    """
    algorithm = ALGORITHMS[config.objective.algorithm]
    shape = GroupShape(
        policy_tokens=tuple(sum(sum(segment.loss_mask) for segment in segments) for segments in rollouts),
        divisor=config.objective.loss_divisor,
        groups_per_step=config.groups_per_step,
        group_size=config.group_size,
    )
    return [
        sample
        for segments, advantage, factor in zip(
            rollouts, advantages_of(rewards, config.objective), algorithm.factors(shape), strict=True
        )
        for sample in token_streams(segments, advantage * factor)
    ]


def advantages_of(rewards: Sequence[float], objective: ObjectiveConfig) -> list[float]:
    """One advantage a rollout, before normalisers of its tokens and the term for leaving the reference."""
    return ALGORITHMS[objective.algorithm].advantages(rewards)


def correction_of(objective: ObjectiveConfig) -> Correction:
    """The importance correction in force: the configured one, or the algorithm's own."""
    return build_correction(objective.correction, own=ALGORITHMS[objective.algorithm].correction)


__all__ = ["ALGORITHMS", "Algorithm", "advantages_of", "correction_of", "group_streams"]
