"""When lost groups are no accident any more: the run pauses with the cause instead of spending its prompts."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW, LEAST, SHARE = 20, 10, 0.5
"""Beside losses in a row: half of the last 20 groups, once there are 10."""


def tripped(recent: Sequence[bool], *, in_a_row: int) -> str | None:
    """What is wrong, in words. `recent`: newest first, True for an accepted group and False for one lost to a fault of
    ours. `in_a_row` 0 turns the breaker off."""
    if not in_a_row:
        return None
    lost = next((i for i, accepted in enumerate(recent) if accepted), len(recent))
    if lost >= in_a_row:
        return f"the last {lost} groups were all lost to infrastructure"
    seen = recent[:WINDOW]
    failed = seen.count(False)
    if len(seen) >= LEAST and failed > SHARE * len(seen):
        return f"{failed} of the last {len(seen)} groups were lost to infrastructure"
    return None
