"""Rollout checkpoints: an attempt in the middle, kept beside the snapshot of its sandbox, and going on from it.

A worker that dies takes its episodes with it. Where the harness keeps snapshots (`snapshot_every`), each is saved with
the tokens up to there, their log-probabilities and versions. The next worker starts the sandbox from the snapshot and
asks the engine to go on: what was sampled before stays the policy's own and is trained on, with the versions that
sampled it. Without a usable snapshot the attempt begins again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from sandbox.backends.base import SnapshotError
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
    tool_schema_hash: str
    messages: tuple[dict[str, Any], ...]
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...]
    """Context windows that were left; the last one is open."""
    snapshot: str
    """Digest of the sandbox after the last turn."""


class Partials(Protocol):
    """Where the attempts of one group are kept. Saving replaces what was there."""

    async def save(self, partial: Partial) -> None: ...

    async def load(self, sample: int) -> Partial | None: ...


async def usable(
    partials: Partials | None, store: SnapshotStore | None, *, task: TaskSpec, sample: int, seed: int
) -> tuple[Partial, Lease] | None:
    """The kept attempt with its snapshot; None when there is none, or it is of another task or seed, or damaged."""
    if partials is None or store is None:
        return None
    partial = await partials.load(sample)
    if partial is None or (partial.bundle_hash, partial.seed) != (task.bundle_hash, seed):
        return None
    try:
        return partial, await store.use(partial.snapshot)
    except SnapshotError as error:
        log.info("%s, attempt %d begins again: %s", task.id, sample, error)
        return None
