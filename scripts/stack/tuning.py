"""What Postgres may take of this machine: memory that it shares, plans with and sorts in, and room between checkpoints.

Shares of the memory, each within bounds, so that a laptop keeps most of its own and a large machine is used. Nothing here
is about durability: what was accepted is on the disk before its commit returns, whatever these say.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MB = 1 << 20
SHARES: dict[str, tuple[int, int, int]] = {
    # setting: (one part in so many of the memory, least MB, most MB)
    "shared_buffers": (8, 128, 8192),  # beyond, the kernel's own cache does as well
    "effective_cache_size": (2, 256, 1 << 20),  # only tells the planner what is likely to be in memory
    "maintenance_work_mem": (64, 64, 1024),  # of one index build or vacuum
    "work_mem": (2048, 4, 64),  # of each sort or hash of each of up to 200 connections
    # Log between two checkpoints: each page's first change after one is logged whole, so fewer of them write less. What a
    # crash leaves is replayed at hundreds of MB a second.
    "max_wal_size": (12, 512, 4096),
}
CHECKPOINT_SECONDS = 900
"""At most, between two checkpoints; the log's size usually comes first under load."""


def settings(memory: int | None = None) -> dict[str, str]:
    """For `memory` bytes; by default what this process may use."""
    have = (machine_memory() if memory is None else memory) // MB
    sized = {name: f"{min(max(have // part, least), most)}MB" for name, (part, least, most) in SHARES.items()}
    return {**sized, "checkpoint_timeout": f"{CHECKPOINT_SECONDS}s", "wal_compression": "pglz"}


def machine_memory(cgroups: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")) -> int:
    """Memory in bytes: the machine's, or the tightest limit of the cgroups above this process, if lower."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits(cgroups, mine)])


def _limits(cgroups: Path, mine: Path) -> list[int]:
    """Memory limits under cgroup v1 and v2; a container sees its own cgroup as the root."""
    files = []
    with contextlib.suppress(OSError):
        for line in mine.read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            root = cgroups / "memory" if controllers else cgroups
            folder = root / place.strip("/")
            above = [folder, *folder.parents]
            inside = above[: above.index(root) + 1] if root in above else [root]
            name = "memory.limit_in_bytes" if controllers else "memory.max"
            files += [one / name for one in inside]
    found = []
    for file in files:
        with contextlib.suppress(OSError, ValueError):  # no such group, or no limit ("max")
            found.append(int(file.read_text()))
    return found
