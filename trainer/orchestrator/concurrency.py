"""Adaptive limit on groups in flight, from the engine's reported load.

Requests in the engine's queue gain nothing and become more stale. While there is a queue, the limit falls by half of
the waiting requests, at most by a quarter. With free slots and no queue it rises by an eighth. It stays between one
step's groups, so that a batch can always be formed, and the configured maximum.
"""

from __future__ import annotations

from dataclasses import dataclass

FREE_SHARE = 0.9
"""Below this share of slots in use an engine has spare capacity."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Running requests of one deployment, queued requests, and slots (0: unknown)."""

    running: int
    waiting: int
    slots: int = 0


def next_limit(current: int, load: EngineLoad, *, least: int, most: int, group_size: int) -> int:
    """New limit on groups in flight after an observation, given the current one."""
    least = min(least, most)
    if load.waiting:
        cut = min(-(-load.waiting // (2 * group_size)), -(-current // 4))
        wanted = current - cut
    elif not load.slots or load.running <= FREE_SHARE * load.slots:
        wanted = current + max(1, current // 8)
    else:
        wanted = current
    return max(least, min(most, wanted))
