"""Circuit breaker: pauses a run whose groups are systematically lost, instead of consuming its prompts."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW, MIN_GROUPS, MAX_LOST_SHARE = 20, 10, 0.5
"""Besides consecutive losses: half of the last 20 groups, once there are 10."""


def breaker_open(recent: Sequence[bool], *, in_a_row: int) -> str | None:
    """Return the reason to pause, or None. `recent`: newest first, True for an accepted group and False for one lost to
    an infrastructure fault. `in_a_row` 0 disables the breaker.
    """
    if not in_a_row:
        return None
    lost = next((i for i, accepted in enumerate(recent) if accepted), len(recent))
    if lost >= in_a_row:
        return f"the last {lost} groups were all lost to infrastructure"
    seen = recent[:WINDOW]
    failed = seen.count(False)
    if len(seen) >= MIN_GROUPS and failed > MAX_LOST_SHARE * len(seen):
        return f"{failed} of the last {len(seen)} groups were lost to infrastructure"
    return None
