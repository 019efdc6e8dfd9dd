"""Rollout checkpoints in the artifact store. Any worker can continue from them."""

from __future__ import annotations

import asyncio
import logging

from composer_web.core.artifacts import ArtifactError, artifacts
from trainer.rollouts.checkpoint import RolloutCheckpoint

log = logging.getLogger(__name__)


class StoredCheckpoints:
    """Rollout checkpoints of one group. They are removed with the group's other temporary files when the group is
    accepted."""

    def __init__(self, group_id: int) -> None:
        self._prefix = f"groups/{group_id}/partial"

    async def save(self, checkpoint: RolloutCheckpoint) -> None:
        await asyncio.to_thread(artifacts().put_model, f"{self._prefix}/{checkpoint.sample}.json.zst", checkpoint)

    async def load(self, sample: int) -> RolloutCheckpoint | None:
        """A damaged checkpoint counts as none: the attempt restarts."""
        try:
            return await asyncio.to_thread(
                artifacts().get_model, f"{self._prefix}/{sample}.json.zst", RolloutCheckpoint
            )
        except ArtifactError as error:
            log.debug("group of %s has no attempt %d to go on with: %s", self._prefix, sample, error)
            return None
