"""Garbage collection: removes versions that nothing can still need, never a link of a needed chain."""

from __future__ import annotations

from trainer.errors import WeightError
from trainer.weights.versions import Versions


def needed(store: Versions, keep: int) -> set[int]:
    """Newest `keep` versions, pinned ones, and every version that one of them stands on.

    A manifest that cannot be read keeps everything before it: what it stands on is not known.
    """
    versions = store.all()
    wanted: set[int] = set()
    for top in sorted({*versions[-keep:], *(store.pinned() & set(versions))}, reverse=True):
        version: int | None = top
        while version is not None and version not in wanted:
            wanted.add(version)
            try:
                base = store.manifest(version).base_version
            except WeightError:
                wanted.update([v for v in versions if v < version])
                base = None
            version = base
    return wanted


def collect(store: Versions, *, keep: int) -> list[int]:
    """Removes what is not needed and returns it, oldest first."""
    assert keep >= 1
    with store.writing():
        store.sweep()
        wanted = needed(store, keep)
        # Newest first: a kill in between leaves whole chains, never a delta without its base.
        doomed = [v for v in store.all() if v not in wanted]
        for version in reversed(doomed):
            store.remove(version)
    return doomed
