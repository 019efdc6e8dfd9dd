"""What can be wrong with a parallel run. Each text says what was found and what to change."""

from __future__ import annotations

from trainer.stages.base import StageError


class ParallelRefused(StageError):
    """This policy, configuration or machine cannot be trained so."""


class RanksLost(StageError):
    """The processes of the trainer ended without a result."""
