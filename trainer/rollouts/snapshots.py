"""Snapshots of an episode's sandbox, turn by turn, and what an episode that goes on from one needs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from sandbox.backends.base import Sandbox, Snapshot, SnapshotTooLarge
from sandbox.backends.snapshots import SnapshotStore
from trainer.rollouts.types import Forked, Turn

log = logging.getLogger(__name__)


class TurnSnapshots:
    """Keeps the sandbox of one episode after every n-th turn; copies only when something has changed since the last."""

    def __init__(self, store: SnapshotStore | None, every: int) -> None:
        """Without a store, or with `every` 0, nothing is kept."""
        self._store, self._every = store, every
        self._stamp = self._digest = ""

    async def after(self, turn: int, sandbox: Sandbox) -> str:
        """Digest of the sandbox after turn `turn` (from 0); empty when none is kept.

        What changed may be too much to keep: that is the policy's doing and no failure, and a fork from such a turn
        runs the calls since the last snapshot again. Raises SandboxError.
        """
        if self._store is None or not self._every or (turn + 1) % self._every:
            return ""
        try:
            stamp = await sandbox.stamp()
            if stamp != self._stamp:
                with await self._store.save(sandbox) as lease:
                    self._digest, self._stamp = lease.digest, stamp
        except SnapshotTooLarge as error:
            log.info("no snapshot after turn %d: %s", turn, error)
            return ""
        return self._digest


@dataclass(frozen=True, slots=True)
class Origin:
    """A moment of a recorded episode that others go on from (`fork.py` makes it)."""

    messages: tuple[dict[str, Any], ...]
    turns: tuple[Turn, ...]
    """What was done before, in order."""
    left: tuple[list[int], ...]
    """Tokens of the context windows that were left before, exactly as they were."""
    tokens: list[int]
    """Of the open one: all that the policy has read and written before its next turn."""
    summarize: bool
    """Its last tokens ask for a summary: the next turn is one."""
    snapshot: Snapshot
    """The sandbox at that moment; its files stay while episodes run."""
    forked: Forked
