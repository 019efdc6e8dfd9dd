"""Rollout checkpoints: saves an attempt in progress beside its sandbox snapshot, and resumes it.

A worker that dies loses its episodes. Where the harness keeps snapshots (`snapshot_every`), each is saved with the
tokens so far, their log-probabilities and versions. The next worker starts the sandbox from the snapshot and continues
generation. Earlier tokens remain the policy's own and are trained on with the versions that sampled them. Without a
usable snapshot the attempt starts over.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sandbox.backends.base import SnapshotError
from trainer.rollouts.choices import Choices
from trainer.rollouts.record import Record
from trainer.types import Frozen, Segment, Turn

if TYPE_CHECKING:
    from sandbox.backends.snapshots import Lease, SnapshotStore
    from sandbox.tasks.spec import TaskSpec

log = logging.getLogger(__name__)


class RolloutCheckpoint(Frozen):
    """State from which an attempt resumes after its last saved turn."""

    task_id: str
    bundle_hash: str
    sample: int
    seed: int
    messages: tuple[dict[str, Any], ...]
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...]
    """Context windows so far; the last one is open."""
    snapshot: str
    """Digest of the sandbox after the last turn."""
    seconds: dict[str, float]
    """Seconds spent so far, by phase."""


class RolloutCheckpoints(Protocol):
    """Storage of one group's attempts. Saving replaces the previous state."""

    async def save(self, checkpoint: RolloutCheckpoint) -> None: ...

    async def load(self, sample: int) -> RolloutCheckpoint | None: ...


@dataclass(frozen=True, slots=True)
class Keeper:
    """Saves one attempt, when storage is available."""

    checkpoints: RolloutCheckpoints | None
    task: TaskSpec
    sample: int
    seed: int

    async def keep(self, record: Record, snapshot: str) -> None:
        """Save the attempt as it is now, before its next turn."""
        if self.checkpoints is None:
            return
        window = Segment(
            tokens=list(record.tokens),
            logprobs=list(record.logprobs),
            loss_mask=list(record.loss_mask),
            versions=list(record.versions),
            experts=record.choices.routed(),
            support=record.choices.support(),
            opening=record.opening,
        )
        await self.checkpoints.save(
            RolloutCheckpoint(
                task_id=self.task.id,
                bundle_hash=self.task.bundle_hash,
                sample=self.sample,
                seed=self.seed,
                messages=record.messages,
                turns=tuple(record.turns),
                segments=(*record.segments, window),
                snapshot=snapshot,
                seconds=record.seconds,
            )
        )

    async def usable(self, store: SnapshotStore | None, min_version: int = 0) -> tuple[RolloutCheckpoint, Lease] | None:
        """The saved attempt with its snapshot. None when there is none, it belongs to another task or seed, it is
        damaged, or it holds tokens of a version before `min_version` (too stale to train on).
        """
        if self.checkpoints is None or store is None:
            return None
        checkpoint = await self.checkpoints.load(self.sample)
        if checkpoint is None or (checkpoint.bundle_hash, checkpoint.seed) != (self.task.bundle_hash, self.seed):
            return None
        if any(0 <= version < min_version for segment in checkpoint.segments for version in segment.versions):
            log.info("%s, attempt %d begins again: its tokens are too old", self.task.id, self.sample)
            return None
        try:
            return checkpoint, await store.use(checkpoint.snapshot)
        except SnapshotError as error:
            log.info("%s, attempt %d begins again: %s", self.task.id, self.sample, error)
            return None


def restore(checkpoint: RolloutCheckpoint) -> Record:
    """Restore the record. Its tokens are the policy's own, with their log-probabilities and versions."""
    *left, window = checkpoint.segments
    return Record(
        messages=checkpoint.messages,
        tokens=list(window.tokens),
        logprobs=list(window.logprobs),
        loss_mask=list(window.loss_mask),
        versions=list(window.versions),
        choices=Choices.of(window),
        opening=window.opening,
        segments=list(left),
        turns=list(checkpoint.turns),
        seconds=dict(checkpoint.seconds),
    )
