"""Per-turn snapshots of an episode's sandbox, and the state from which a forked episode continues."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from sandbox.backends.base import Sandbox, SandboxLost, Snapshot, SnapshotTooLarge
from sandbox.backends.snapshots import SnapshotStore
from trainer.types import Forked, Turn

log = logging.getLogger(__name__)


class TurnSnapshots:
    """Keeps one episode's sandbox after every n-th turn; copies only when something has changed since the last
    snapshot."""

    def __init__(self, store: SnapshotStore | None, every: int) -> None:
        """Keeps nothing without a store, or when `every` is 0."""
        self._store, self._every = store, every
        self._stamp = self._digest = ""

    async def after(self, turn: int, sandbox: Sandbox) -> str:
        """Snapshot the sandbox after turn `turn` (from 0) and return its digest; empty when none is kept.

        What the policy made may not be kept: it is too large, or no record holds it. That is no failure of the episode,
        whatever the reason: a fork from such a turn reruns the calls since the last snapshot. Raises SandboxLost.
        """
        if self._store is None or not self._every or (turn + 1) % self._every:
            return ""
        try:
            stamp = await sandbox.stamp()
            if stamp != self._stamp:
                with await self._store.save(sandbox) as lease:
                    self._digest, self._stamp = lease.digest, stamp
        except SandboxLost:
            raise
        except SnapshotTooLarge as error:
            log.info("no snapshot after turn %d: %s", turn, error)
            return ""
        except Exception:
            log.warning("no snapshot after turn %d", turn, exc_info=True)
            return ""
        return self._digest


@dataclass(frozen=True, slots=True)
class Origin:
    """A point in a recorded episode from which others continue (`fork.py` builds it)."""

    messages: tuple[dict[str, Any], ...]
    turns: tuple[Turn, ...]
    """Earlier turns, in order."""
    left: tuple[list[int], ...]
    """Exact tokens of the context windows that were closed before."""
    tokens: list[int]
    """Tokens of the open window: everything read and written before the next turn."""
    summarize: bool
    """The open window ends with a request for a summary; the next turn is one."""
    snapshot: Snapshot
    """Sandbox at that point; its files stay while episodes run."""
    forked: Forked
