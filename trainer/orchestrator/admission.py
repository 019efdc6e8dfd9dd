"""Admission control: how many groups may be dispatched now, from counts alone.

Staleness is bounded at dispatch. With B rollouts per optimiser step, the n-th rollout admitted in a run is trained in
step ceil(n / B). It lags the version that generates it by at most `max_off_policy_steps` versions if n <=
(published_version + max_off_policy_steps + 1) · B. Therefore

    staleness_capacity   = (published_version + max_off_policy_steps + 1) · B - (accepted_offset + accepted + reserved)
    concurrency_capacity = limit - in_flight                  (no bound when there is no limit)

and a group is admitted if and only if both leave room for its G rollouts. That bound is for the slowest groups. Where
rollouts are faster than the trainer, finished ones would accumulate up to it and all become as stale as allowed.
Admission therefore stops while enough finished groups wait for training (our choice). Pure functions: callers hold the
lock under which the counts were read.
"""

from __future__ import annotations


def staleness_capacity(
    *,
    published_version: int,
    max_off_policy_steps: int,
    batch_rollouts: int,
    accepted: int,
    reserved: int,
    accepted_offset: int = 0,
) -> int:
    """Rollouts that may still be admitted under the staleness bound; negative when more are out than allowed.

    `accepted` counts rollouts of accepted groups since the run began (trained or waiting). `reserved` counts dispatched
    rollouts without a verdict. `accepted_offset` counts those accepted before a resume that restarts the count.
    """
    return (published_version + max_off_policy_steps + 1) * batch_rollouts - (accepted_offset + accepted + reserved)


def concurrency_capacity(*, limit: int | None, in_flight: int) -> int | None:
    """Rollouts that may start now under the concurrency limit; None: no limit."""
    return None if limit is None else limit - in_flight


def admissible_groups(
    *,
    published_version: int,
    max_off_policy_steps: int,
    groups_per_step: int,
    group_size: int,
    accepted_groups: int,
    reserved_groups: int,
    in_flight_limit: int | None = None,
    total_groups: int | None = None,
    over_sampled_groups: int = 0,
    ready_groups: int = 0,
    max_buffered_groups: int | None = None,
) -> int:
    """Number of whole groups to dispatch now. `reserved_groups` are dispatched and not yet accepted (in flight).

    `total_groups` caps the run: no group is dispatched that no step will consume. `over_sampled_groups` are dispatched
    beyond the staleness bound; a step leaves them over, and they count as accepted until the next one. `ready_groups`
    are the accepted groups waiting for a step; at `max_buffered_groups`, which is at least one step's groups, none is
    admitted. A step's groups start only after the previous version is published; starting earlier would use an
    unnecessarily old version.
    """
    waiting = max(ready_groups, accepted_groups - (published_version + 1) * groups_per_step)
    if max_buffered_groups is not None and waiting >= max_buffered_groups:
        return 0
    room = staleness_capacity(
        published_version=published_version,
        max_off_policy_steps=max_off_policy_steps,
        batch_rollouts=groups_per_step * group_size,
        accepted=accepted_groups * group_size,
        reserved=reserved_groups * group_size,
    )
    room += over_sampled_groups * group_size
    limit = None if in_flight_limit is None else in_flight_limit * group_size
    slots = concurrency_capacity(limit=limit, in_flight=reserved_groups * group_size)
    if slots is not None:
        room = min(room, slots)
    if total_groups is not None:
        room = min(room, (total_groups - accepted_groups - reserved_groups) * group_size)
    return max(0, room // group_size)
