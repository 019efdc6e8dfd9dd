"""Rollout checkpoints: an attempt in the middle, kept beside the snapshot of its sandbox, and going on from it.

A worker that dies takes its episodes with it. Where the harness keeps snapshots (`snapshot_every`), each is saved with
the tokens up to there, their log-probabilities and versions. The next worker starts the sandbox from the snapshot and
asks the engine to go on: what was sampled before stays the policy's own and is trained on, with the versions that
sampled it. Without a usable snapshot the attempt begins again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sandbox.backends.base import SnapshotError
from trainer.rollouts.choices import Choices
from trainer.rollouts.record import Record
from trainer.rollouts.types import Frozen, Segment, Turn

if TYPE_CHECKING:
    from sandbox.backends.snapshots import Lease, SnapshotStore
    from sandbox.tasks.spec import TaskSpec

log = logging.getLogger(__name__)


class Partial(Frozen):
    """All that an attempt needs to go on after its last kept turn."""

    task_id: str
    bundle_hash: str
    sample: int
    seed: int
    messages: tuple[dict[str, Any], ...]
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...]
    """Context windows that were left; the last one is open."""
    snapshot: str
    """Digest of the sandbox after the last turn."""
    seconds: dict[str, float]
    """Spent until then, by phase."""


class Partials(Protocol):
    """Where the attempts of one group are kept. Saving replaces what was there."""

    async def save(self, partial: Partial) -> None: ...

    async def load(self, sample: int) -> Partial | None: ...


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps one attempt, when there is somewhere to keep it."""

    partials: Partials | None
    task: TaskSpec
    sample: int
    seed: int

    async def keep(self, record: Record, snapshot: str) -> None:
        """The attempt as it is now, before its next turn."""
        if self.partials is None:
            return
        window = Segment(
            tokens=list(record.tokens),
            logprobs=list(record.logprobs),
            loss_mask=list(record.loss_mask),
            versions=list(record.versions),
            experts=record.choices.routed(),
            support=record.choices.support(),
        )
        await self.partials.save(
            Partial(
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

    async def usable(self, store: SnapshotStore | None) -> tuple[Partial, Lease] | None:
        """The kept attempt with its snapshot; None when there is none, it is of another task or seed, or it is damaged."""
        if self.partials is None or store is None:
            return None
        partial = await self.partials.load(self.sample)
        if partial is None or (partial.bundle_hash, partial.seed) != (self.task.bundle_hash, self.seed):
            return None
        try:
            return partial, await store.use(partial.snapshot)
        except SnapshotError as error:
            log.info("%s, attempt %d begins again: %s", self.task.id, self.sample, error)
            return None


def restore(partial: Partial) -> Record:
    """The record as it was: its tokens are the policy's own, with their log-probabilities and versions."""
    *left, window = partial.segments
    return Record(
        messages=partial.messages,
        tokens=list(window.tokens),
        logprobs=list(window.logprobs),
        loss_mask=list(window.loss_mask),
        versions=list(window.versions),
        choices=Choices.of(window),
        segments=list(left),
        turns=list(partial.turns),
        seconds=dict(partial.seconds),
    )
