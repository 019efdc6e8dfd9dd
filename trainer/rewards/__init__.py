"""Rewards: named, versioned parts, each one file, registered on import."""

from trainer.rewards import behaviours as _behaviours
from trainer.rewards import rubric as _rubric
from trainer.rewards.parts import length as _length
from trainer.rewards.parts import tests as _tests
from trainer.rewards.parts import visible as _visible
from trainer.rewards.parts.base import RewardError, part_names, part_versions, reward_part
from trainer.rewards.scoring import score

__all__ = ["RewardError", "part_names", "part_versions", "reward_part", "score"]

del _behaviours, _length, _rubric, _tests, _visible
