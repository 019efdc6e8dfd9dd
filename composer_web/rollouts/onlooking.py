"""Rollouts that run, for people who look on: the copy for reading grows beside them, and open pages are told."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from composer_web.live.hints import publish
from composer_web.ops.artifacts import ArtifactError
from composer_web.rollouts.reading import Growing, live_prefix
from trainer.rollouts.types import Turn

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
"""A rollout's copy is written at most so often; the end of the rollout brings what came after the last time."""


class Onlookers:
    """Of one group. What it writes is removed with the group's other leavings when the group is accepted."""

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
