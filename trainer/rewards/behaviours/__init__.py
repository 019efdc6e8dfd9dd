"""Auxiliary rewards for how the work is done, one file each. All are penalties in [-1, 0] and off by default."""

from trainer.rewards.behaviours import communication, poor_calls, style, unfinished_todos

__all__ = ["communication", "poor_calls", "style", "unfinished_todos"]
