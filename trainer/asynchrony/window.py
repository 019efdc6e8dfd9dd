"""Windowed first-in-first-out: which accepted groups are the next batch.

Taking whatever is finished first would train on fast prompts early and on slow, hard ones late or never. Strict order
would let one slow group stop the trainer. Between them: a finished group may overtake older ones, but only inside a
window of W groups from the oldest that is not trained yet, so a group is overtaken by fewer than W later ones and is
trained at most ceil(W / P) steps after its place in strict order, however slow it is. Dropped groups have no place.

A group that would lag more than allowed if it missed the step is waited for. Both waits end: an open group has a
deadline, after which it is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["open", "accepted", "consumed"]


@dataclass(frozen=True, slots=True)
class Place:
    """A group in prompt order as the scheduler sees it."""

    prompt: int
    state: State
    dispatched_version: int


@dataclass(frozen=True, slots=True)
class Choice:
    batch: tuple[int, ...] | None
    """Prompts of the step in prompt order; None while there are too few or one is waited for."""
    waits_for: tuple[int, ...] = ()
    """Open prompts that the step waits for: the oldest one, and those that would become too stale."""


def choose(places: Sequence[Place], *, step: int, groups_per_step: int, window: int, lag_limit: int) -> Choice:
    """The batch of optimiser step `step` (it updates version `step` - 1) out of `places`.

    `places` are all groups that were not dropped, in prompt order, consumed ones included from the oldest unconsumed on.
    """
    late = tuple(p.prompt for p in places if p.state == "open" and p.dispatched_version <= step - 1 - lag_limit)
    taken: set[int] = set()
    oldest = 0
    while len(taken) < groups_per_step:
        while oldest < len(places) and (places[oldest].state == "consumed" or oldest in taken):
            oldest += 1
        found = next(
            (
                at
                for at in range(oldest, min(oldest + window, len(places)))
                if places[at].state == "accepted" and at not in taken
            ),
            None,
        )
        if found is None:
            blocking = (places[oldest].prompt,) if oldest < len(places) else ()
            return Choice(None, tuple(dict.fromkeys(blocking + late)))
        taken.add(found)
    if late:
        return Choice(None, late)
    return Choice(tuple(places[at].prompt for at in sorted(taken)))
