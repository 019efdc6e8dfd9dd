"""Writes the trajectories of one attempt of a group as they end."""

from __future__ import annotations

import asyncio
import logging

from composer_web.core.artifacts import ArtifactError, ArtifactTooLarge
from composer_web.rollouts.trajectory import trajectory_store
from trainer.types import Trajectory

log = logging.getLogger(__name__)


class Recorder:
    """Writes the trajectories of one attempt of a group below `prefix`, each as it ends."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._keys: dict[int, str] = {}

    async def __call__(self, trajectory: Trajectory) -> None:
        """Raises OSError if the store fails, and other errors if the content cannot be stored."""
        await asyncio.to_thread(self._record, trajectory)

    def key_of(self, trajectory: Trajectory) -> str:
        """Blob key of the trajectory, or "" if it could not be stored. Writes rollouts that were cut or lost without
        an end."""
        if trajectory.sample not in self._keys and not trajectory.turns:
            try:
                self._record(trajectory)
            except OSError:
                log.warning("%s: sample %d is not kept", self.prefix, trajectory.sample, exc_info=True)
        return self._keys.get(trajectory.sample, "")

    def _record(self, trajectory: Trajectory) -> None:
        key = f"{self.prefix}/{trajectory.sample}.json.zst"
        self._keys.pop(trajectory.sample, None)
        try:
            trajectory_store.record(key, trajectory)
        except ArtifactTooLarge:
            raise  # of what the policy wrote, not of the store
        except ArtifactError as error:
            raise error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error)) from error
        self._keys[trajectory.sample] = key
