"""The admission gate: how many groups may be dispatched now, from counts alone.

Staleness is bounded at dispatch. With B rollouts consumed by one optimiser step, a rollout that is admitted as
the n-th of the run will be trained in step ceil(n / B); it may lag the version that generates it by at most
`max_staleness` versions if n <= (published_version + max_staleness + 1) · B. So

    staleness_capacity   = (published_version + max_staleness + 1) · B - (accepted_offset + accepted + reserved)
    concurrency_capacity = limit - in_flight                  (no bound when there is no limit)

and a whole group is admitted if and only if both leave room for its G rollouts. That bound is for the slowest groups.
Where rollouts are quicker than the trainer, finished ones would pile up to it and all be as stale as allowed; so nothing
is admitted while enough wait to be trained (our choice). Pure functions: callers hold the lock under which the counts
were read.
"""

from __future__ import annotations


def staleness_capacity(
    *,
    published_version: int,
    max_staleness: int,
    batch_rollouts: int,
    accepted: int,
    reserved: int,
    accepted_offset: int = 0,
) -> int:
    """Rollouts that may still be admitted under the staleness bound; negative when more are out than allowed.

    `accepted` counts rollouts of accepted groups since the run began (trained or waiting), `reserved` those
    dispatched without a verdict yet, `accepted_offset` those accepted before a resume that restarts the count.
    """
    return (published_version + max_staleness + 1) * batch_rollouts - (accepted_offset + accepted + reserved)


def concurrency_capacity(*, limit: int | None, in_flight: int) -> int | None:
    """Rollouts that may start now under the concurrency limit; None is no limit."""
    return None if limit is None else limit - in_flight


def admissible_groups(
    *,
    published_version: int,
    max_staleness: int,
    groups_per_step: int,
    group_size: int,
    accepted_groups: int,
    reserved_groups: int,
    in_flight_limit: int | None = None,
    total_groups: int | None = None,
    surplus_groups: int = 0,
    ready_groups: int = 0,
    ready_limit: int | None = None,
) -> int:
    """Whole groups to dispatch now. `reserved_groups` are dispatched and not yet accepted (the ones in flight).

    `total_groups` caps the run: nothing is dispatched that no step will consume. `surplus_groups` are dispatched beyond
    that staleness bound (over-sampling); a step leaves them over, and they count as accepted until the next one.
    `ready_groups` of the accepted ones wait for a step; at `ready_limit`, which is no less than a step's, none is admitted.
    A step's groups wait until the version before it is published: what began earlier would be a version older than it need be.
    """
    waiting = max(ready_groups, accepted_groups - (published_version + 1) * groups_per_step)
    if ready_limit is not None and waiting >= ready_limit:
        return 0
    room = staleness_capacity(
        published_version=published_version,
        max_staleness=max_staleness,
        batch_rollouts=groups_per_step * group_size,
        accepted=accepted_groups * group_size,
        reserved=reserved_groups * group_size,
    )
    room += surplus_groups * group_size
    limit = None if in_flight_limit is None else in_flight_limit * group_size
    slots = concurrency_capacity(limit=limit, in_flight=reserved_groups * group_size)
    if slots is not None:
        room = min(room, slots)
    if total_groups is not None:
        room = min(room, (total_groups - accepted_groups - reserved_groups) * group_size)
    return max(0, room // group_size)


def smallest_useful_staleness(*, in_flight_groups: int, groups_per_step: int) -> int:
    """The least `max_staleness` that can keep `in_flight_groups` in flight: ceil(C / B) - 1."""
    return max(0, -(-in_flight_groups // groups_per_step) - 1)
