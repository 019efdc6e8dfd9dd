"""What a stage needs from the outside world: batches in, facts out. No database, no web framework.

The control plane implements these two protocols over its tables; `rl_sync.py` and the tests implement them in
memory. A stage never asks who is on the other side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from trainer.types import TrainGroup


class GroupSource(Protocol):
    """Accepted groups, assigned to optimiser steps exactly once."""

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        """The groups of optimiser step `step` (counted from 1), in the order in which they are trained.

        The assignment group → step is durable before this returns, and asking for the same step again gives the
        same groups in the same order: a trainer that resumes from a checkpoint replays what it had consumed.
        Raises BatchTimeout after `timeout` seconds without a full batch.
        """
        ...

    def flow(self) -> Mapping[str, float]:
        """Groups since the run began: dispatched, accepted, dropped by reason (names of `trainer.learning.metrics`)."""
        ...


class StageSink(Protocol):
    """Where a stage reports. Every call is cheap and durable when it returns, and is made by the thread of the stage but for
    `version_published`, which may come from another one at the same time."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of one step; names are those of `trainer.learning.metrics`. A repeated step replaces the old numbers."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Steps done of all steps."""
        ...

    def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
        """The weight store now holds policy version `version`. `values` are more numbers of the step that made it."""
        ...

    def checkpoint_saved(self, step: int, path: Path, *, final: bool) -> None:
        """`path` holds a complete checkpoint; `path / "policy"` loads as a policy."""
        ...

    def event(
        self, level: Literal["info", "warning", "error"], message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        """Something that a person should read in the run's log."""
        ...

    def should_stop(self) -> bool:
        """True when the run was cancelled or paused, or this process lost its lease. Asked between steps."""
        ...


@dataclass(frozen=True, slots=True)
class StageResult:
    """How a stage ended: all steps done, or stopped on request with everything up to `step` checkpointed."""

    outcome: Literal["completed", "stopped"]
    step: int
    checkpoint: Path | None
