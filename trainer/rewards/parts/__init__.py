"""Reward parts: the registry (`base.py`) and the parts that follow from the task alone: hidden tests, visible tests, length."""

from trainer.rewards.parts.base import Part, Registered, RewardError, RewardPartFailed, reward_part

__all__ = ["Part", "Registered", "RewardError", "RewardPartFailed", "reward_part"]
