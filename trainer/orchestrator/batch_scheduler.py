"""Windowed first-in-first-out batch scheduling: selects which accepted groups form the next batch.

Taking whatever finishes first would train on fast prompts early and on slow, hard ones late or never. With strict
order, one slow group could stop the trainer. This scheduler lies between: a finished group may overtake older ones only
inside a window of W groups from the oldest untrained one. Fewer than W later groups overtake a group, so it is trained
at most ceil(W / P) steps after its position in strict order, however slow it is. Dropped groups have no position.

The batch waits for a group that would exceed the staleness limit by missing the step. Both waits end: an open group has
a deadline, after which it is dropped. A finished group's staleness is that of its oldest token. A group whose last
chance is this step takes precedence. A group that is too stale already enters no batch, and its prompt is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sandbox.grading.verdict.outcomes import Cause, Loss

State = Literal["open", "accepted", "consumed"]


@dataclass(frozen=True, slots=True)
class BufferEntry:
    """A group in prompt order, as the scheduler sees it."""

    prompt: int
    state: State
    version: int
    """Version of the group's oldest token; while the group is open, the version at dispatch, which bounds it from
    below."""


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    batch: tuple[int, ...] | None
    """Prompts of the step in prompt order; None while too few are finished or the step waits for one."""
    waits_for: tuple[int, ...] = ()
    """Open prompts that the step waits for: the oldest one, and those that would become too stale."""
    stale: tuple[int, ...] = ()
    """Finished prompts that exceed the staleness limit at this step, and so at every later one; to be dropped."""


def schedule_batch(
    entries: Sequence[BufferEntry], *, step: int, groups_per_step: int, window: int, staleness_limit: int
) -> BatchSchedule:
    """Select the batch of optimiser step `step` (it updates version `step` - 1) from `entries`.

    `entries` are all groups that were not dropped, in prompt order, including consumed ones after the oldest unconsumed
    group.
    """
    last = step - 1 - staleness_limit
    """Oldest version that the step may train on."""
    stale = tuple(p.prompt for p in entries if p.state == "accepted" and p.version < last)
    entries = [p for p in entries if p.prompt not in stale]
    late = tuple(p.prompt for p in entries if p.state == "open" and p.version <= last)
    urgent = [at for at, p in enumerate(entries) if p.state == "accepted" and p.version == last]
    taken = set(urgent[:groups_per_step])
    oldest = 0
    while len(taken) < groups_per_step:
        while oldest < len(entries) and (entries[oldest].state == "consumed" or oldest in taken):
            oldest += 1
        found = next(
            (
                at
                for at in range(oldest, min(oldest + window, len(entries)))
                if entries[at].state == "accepted" and at not in taken
            ),
            None,
        )
        if found is None:
            blocking = (entries[oldest].prompt,) if oldest < len(entries) else ()
            return BatchSchedule(None, tuple(dict.fromkeys(blocking + late)), stale)
        taken.add(found)
    if late:
        return BatchSchedule(None, late, stale)
    return BatchSchedule(tuple(entries[at].prompt for at in sorted(taken)), (), stale)


def stale_loss(prompt: int, step: int, staleness_limit: int) -> Loss:
    """Reason for dropping a finished group at `step`."""
    return Loss(
        Cause.TOO_STALE,
        f"prompt {prompt}: its oldest tokens are of a policy version more than {staleness_limit} before version "
        f"{step - 1}, which "
        f"step {step} trains; look at whether engines follow the weight store, or raise max_off_policy_steps",
    )
