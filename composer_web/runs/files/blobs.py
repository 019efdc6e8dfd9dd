"""Blobs of a group in the artifact store: its trajectories, their reading copies, and what was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from composer_web.core.artifacts import artifacts
from composer_web.rollouts.trajectory import lens
from composer_web.rollouts.trajectory.trajectory_store import prefix_of


def sizes_of(group_id: int) -> dict[str, int]:
    """Stored bytes by key. Raises ArtifactError."""
    return artifacts().sizes(f"groups/{group_id}")


def removable(group_id: int, sizes: Mapping[str, int], stay: Iterable[str]) -> dict[str, int]:
    """Those that go, with their bytes, when the trajectories with the keys `stay` are kept: these keep what their token lens
    shows."""
    kept = set(stay)
    if kept:
        kept.add(lens.key_of(group_id))
    copies = tuple(f"{prefix_of(key)}/" for key in kept)
    return {key: size for key, size in sizes.items() if key not in kept and not key.startswith(copies or ("//",))}
