"""Registry of algorithms, one file each, and the per-token streams that they compute for a group."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.algorithms.advantage import token_streams
from trainer.algorithms.base import Algorithm, GroupShape
from trainer.algorithms.cispo import CISPO
from trainer.algorithms.composer import COMPOSER
from trainer.algorithms.dr_grpo import DR_GRPO
from trainer.algorithms.grpo import GRPO
from trainer.algorithms.gspo import GSPO
from trainer.algorithms.rloo import RLOO
from trainer.config import ObjectiveConfig, RLConfig
from trainer.types import Segment, TrainSample

ALGORITHMS = {algorithm.name: algorithm for algorithm in (COMPOSER, GRPO, DR_GRPO, RLOO, GSPO, CISPO)}


def advantages_of(rewards: Sequence[float], objective: ObjectiveConfig) -> list[float]:
    """One advantage per rollout, before token normalisers and the KL term."""
    return ALGORITHMS[objective.algorithm].advantages(rewards)


def group_streams(
    rewards: Sequence[float], rollouts: Sequence[Sequence[Segment]], config: RLConfig
) -> list[TrainSample]:
    """Per-token streams of a group: `rewards[i]` belongs to the rollout with the segments `rollouts[i]`."""
    return advantage_streams(advantages_of(rewards, config.objective), rollouts, config)


def advantage_streams(
    advantages: Sequence[float], rollouts: Sequence[Sequence[Segment]], config: RLConfig
) -> list[TrainSample]:
    """Per-token streams of a group: `advantages[i]` belongs to the rollout with the segments `rollouts[i]`.

    Every policy token of every segment of a rollout has the same advantage, times the algorithm's token normaliser.
    """
    shape = GroupShape(
        output_tokens=tuple(sum(sum(segment.loss_mask) for segment in segments) for segments in rollouts),
        divisor=config.objective.loss_divisor,
        groups_per_step=config.groups_per_step,
        group_size=config.group_size,
    )
    factors = ALGORITHMS[config.objective.algorithm].factors(shape)
    return [
        sample
        for segments, advantage, factor in zip(rollouts, advantages, factors, strict=True)
        for sample in token_streams(segments, advantage * factor)
    ]


__all__ = ["ALGORITHMS", "Algorithm", "advantage_streams", "advantages_of", "group_streams"]
