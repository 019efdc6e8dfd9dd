"""Live view of running rollouts: their reading copies grow as they run, and open pages are notified."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from composer_web.core.artifacts import ArtifactError
from composer_web.live.hints import publish
from composer_web.rollouts.trajectory_store import Growing, live_prefix
from trainer.types import Turn

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
"""Minimum interval between two writes of a rollout's copy. The end of the rollout writes the remainder."""


class Onlookers:
    """Live copies of one group's rollouts. They are removed with the group's other temporary files when the group is
    accepted."""

    def __init__(self, group_id: int) -> None:
        self._group = group_id
        self._copies: dict[int, Growing] = {}
        self._written: dict[int, float] = {}

    async def __call__(self, sample: int, messages: tuple[dict[str, Any], ...], turns: Sequence[Turn]) -> None:
        now = time.monotonic()
        if now - self._written.get(sample, -EVERY_SECONDS) < EVERY_SECONDS:
            return
        self._written[sample] = now
        copy = self._copies.setdefault(sample, Growing(live_prefix(self._group, sample)))
        try:
            await asyncio.to_thread(copy.grow, messages, tuple(turns))
        except ArtifactError as error:  # nobody sees this turn; the rollout itself lacks nothing
            log.warning("group %d, attempt %d cannot be looked at while it runs: %s", self._group, sample, error)
            return
        await asyncio.to_thread(publish, f"group:{self._group}")
