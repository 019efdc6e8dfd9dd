"""Errors of distributed training. Each message states the finding and the remedy."""

from __future__ import annotations

from trainer.stages.base import StageError


class ParallelRefused(StageError):
    """This policy or configuration cannot be trained this way on this machine."""


class RanksLost(StageError):
    """The trainer's processes ended without a result."""
