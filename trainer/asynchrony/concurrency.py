"""How many groups may be in flight, from what the engine says of itself.

Requests that wait in the engine's queue gain nothing and grow older: while there is a queue the limit falls by half of
what waits, at most by a quarter; while there are free slots and no queue it rises by an eighth. It stays between one
step's groups, so that a batch can always be made, and the configured most.
"""

from __future__ import annotations

from dataclasses import dataclass

FREE_SHARE = 0.9
"""Below this share of its slots in use an engine has room."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Requests of one deployment that are computed now, that wait for a slot, and its slots (0: not known)."""

    running: int
    waiting: int
    slots: int = 0


def next_limit(current: int, load: EngineLoad, *, least: int, most: int, group_size: int) -> int:
    """Groups that may be in flight after an observation, out of what was allowed until now."""
    least = min(least, most)
    if load.waiting:
        cut = min(-(-load.waiting // (2 * group_size)), -(-current // 4))
        wanted = current - cut
    elif not load.slots or load.running <= FREE_SHARE * load.slots:
        wanted = current + max(1, current // 8)
    else:
        wanted = current
    return max(least, min(most, wanted))
