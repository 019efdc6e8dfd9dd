"""Live view of running rollouts: their reading copies grow as they run, and open pages are notified."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from composer_web.core.artifacts import ArtifactError
from composer_web.live.hints import publish
from composer_web.rollouts.trajectory.trajectory_store import Growing, live_prefix
from composer_web.rollouts.worker.open_turns import OpenTurns
from trainer.rollouts.open_turn import OpenTurn
from trainer.types import Turn

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
"""Minimum interval between two writes of a rollout's copy that nobody watches. The end of the rollout writes the
remainder."""

Opening = tuple[dict[str, Any], ...]


class Onlookers:
    """Live copies of one group's rollouts. They are removed with the group's other temporary files when the group is
    accepted. Turns that are not recorded yet go to `open_turns`."""

    def __init__(self, group_id: int, open_turns: OpenTurns) -> None:
        self._group = group_id
        self._open_turns = open_turns
        self._copies: dict[int, Growing] = {}
        self._written: dict[int, float] = {}
        self._unwritten: dict[int, tuple[Opening, tuple[Turn, ...]]] = {}
        """Turns that came too soon after others."""
        self._writing = asyncio.Lock()

    async def __call__(self, sample: int, messages: Opening, turns: Sequence[Turn]) -> None:
        self._unwritten[sample] = messages, tuple(turns)
        if time.monotonic() - self._written.get(sample, -EVERY_SECONDS) >= EVERY_SECONDS:
            await self._write(sample)

    def opened(self, turn: OpenTurn) -> None:
        self._open_turns.opened(self._group, turn, self._write)

    def closed(self, sample: int) -> None:
        self._open_turns.closed(self._group, sample)

    async def _write(self, sample: int) -> None:
        async with self._writing:
            if (unwritten := self._unwritten.pop(sample, None)) is None:
                return
            self._written[sample] = time.monotonic()
            copy = self._copies.setdefault(sample, Growing(live_prefix(self._group, sample)))
            try:
                await asyncio.to_thread(copy.grow, *unwritten)
            except ArtifactError as error:  # nobody sees this turn; the rollout itself lacks nothing
                log.warning("group %d, attempt %d cannot be looked at while it runs: %s", self._group, sample, error)
                return
        await asyncio.to_thread(publish, f"group:{self._group}")
