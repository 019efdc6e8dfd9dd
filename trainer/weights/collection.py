"""Garbage collection: removes versions that nothing can still need, never a link of a needed chain."""

from __future__ import annotations

from trainer.weights.errors import WeightError
from trainer.weights.folder import Folder


def needed(folder: Folder, keep: int) -> set[int]:
    """Newest `keep` versions, pinned ones, and every version that one of them stands on.

    A manifest that cannot be read keeps everything before it: what it stands on is not known.
    """
    versions = folder.versions()
    wanted: set[int] = set()
    for top in sorted({*versions[-keep:], *(folder.pinned() & set(versions))}, reverse=True):
        version: int | None = top
        while version is not None and version not in wanted:
            wanted.add(version)
            try:
                base = folder.manifest(version).base_version
            except WeightError:
                wanted.update([v for v in versions if v < version])
                base = None
            version = base
    return wanted


def collect(folder: Folder, *, keep: int) -> list[int]:
    """Removes what is not needed and returns it, oldest first."""
    assert keep >= 1
    with folder.writing():
        folder.sweep()
        wanted = needed(folder, keep)
        # Newest first: a kill in between leaves whole chains, never a delta without its base.
        doomed = [v for v in folder.versions() if v not in wanted]
        for version in reversed(doomed):
            folder.remove(version)
    return doomed
