"""Quotas: how much a person's runs may have at once, kept when groups are dispatched.

A row without a person is for everybody who has none of his own. What is out already goes on; only nothing new is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connection, transaction
from django.db.models import Q, Sum

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.ops.errors import UserError
from composer_web.ops.models import Quota

if TYPE_CHECKING:
    from composer_web.runs.models import Run

ADVISORY_CLASS = 0x6F63
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Use:
    """What a person's runs have now: rollouts in flight, bytes of kept checkpoints, share of all rollouts in flight."""

    rollouts: int
    bytes: int
    others: int

    @property
    def share(self) -> float:
        everything = self.rollouts + self.others
        return self.rollouts / everything if everything else 0.0


def of(user_id: int | None) -> Quota | None:
    """The person's own quota, else that of everybody, else none."""
    rows = Quota.objects.filter(Q(user=None) | Q(user_id=user_id)).order_by("user_id")
    found = {row.user_id: row for row in rows}
    return (found.get(user_id) if user_id is not None else None) or found.get(None)


def use(user_id: int | None) -> Use:
    from composer_web.policies.models import Checkpoint
    from composer_web.rollouts.models import GROUP_OPEN, Group

    counts = Group.objects.filter(state__in=GROUP_OPEN, run__isnull=False).aggregate(
        mine=Sum("size", filter=Q(run__created_by=user_id)), all=Sum("size")
    )
    mine = counts["mine"] or 0
    kept = Checkpoint.objects.filter(policy__produced_by__created_by=user_id, removed_at=None)
    return Use(mine, kept.aggregate(total=Sum("bytes"))["total"] or 0, (counts["all"] or 0) - mine)


def admitted(*, run: Run, wanted: int, group_size: int) -> int:
    """Of `wanted` groups those that the owner's quota has room for. Inside the transaction that dispatches them."""
    quota = of(run.created_by_id)
    if quota is None or wanted <= 0:
        return wanted
    with connection.cursor() as cursor:  # two runs of one person count one after the other
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [ADVISORY_CLASS, run.created_by_id or 0])
    return min(wanted, _room(quota, use(run.created_by_id)) // group_size)


def _room(quota: Quota, now: Use) -> int:
    """Rollouts that may still begin."""
    room = 1 << 30
    if quota.storage_gib is not None and now.bytes >= quota.storage_gib * GIB:
        return 0
    if quota.concurrent_rollouts is not None:
        room = quota.concurrent_rollouts - now.rollouts
    if quota.gpu_share is not None and now.others:
        # x / (x + others) <= share; alone somebody may have everything
        room = min(room, int(quota.gpu_share * now.others / (1 - quota.gpu_share)) - now.rollouts)
    return max(0, room)


def why_held(run: Run, *, group_size: int) -> str:
    """Why no group of a running run is dispatched now, and what to do; empty when no quota holds it."""
    quota = of(run.created_by_id) if run.state == "running" and run.kind == "rl" else None
    if quota is None:
        return ""
    now = use(run.created_by_id)
    if _room(quota, now) >= group_size:
        return ""
    whose = f"of {quota.user}" if quota.user else "for everybody"
    if quota.storage_gib is not None and now.bytes >= quota.storage_gib * GIB:
        return (
            f"The quota {whose} holds it: checkpoints take {now.bytes / GIB:.1f} of {quota.storage_gib:g} GiB. Remove "
            "checkpoints of older runs, or ask an admin for more."
        )
    if quota.concurrent_rollouts is not None and quota.concurrent_rollouts - now.rollouts < group_size:
        return (
            f"The quota {whose} holds it: {now.rollouts} of {quota.concurrent_rollouts} rollouts are in flight and a group "
            f"needs {group_size}. It goes on as they end; pause another run, or ask an admin for more."
        )
    return (
        f"The quota {whose} holds it: {now.share:.0%} of all rollouts in flight are yours and {quota.gpu_share:.0%} may be "
        "while others run. It goes on as they end."
    )


@transaction.atomic
def set_quota(
    *,
    actor: User | None,
    user: User | None,
    concurrent_rollouts: int | None = None,
    storage_gib: float | None = None,
    gpu_share: float | None = None,
) -> Quota | None:
    """Replace somebody's quota (everybody's without `user`); all empty removes it. Raises UserError."""
    if concurrent_rollouts is not None and concurrent_rollouts < 1:
        raise UserError("concurrent_rollouts", "at least 1, or empty for no limit")
    if storage_gib is not None and storage_gib <= 0:
        raise UserError("storage_gib", "more than 0, or empty for no limit")
    if gpu_share is not None and not 0 < gpu_share < 1:
        raise UserError("gpu_share", "between 0 and 1, or empty for no limit")
    limits = {"concurrent_rollouts": concurrent_rollouts, "storage_gib": storage_gib, "gpu_share": gpu_share}
    quota: Quota | None
    if all(limit is None for limit in limits.values()):
        Quota.objects.filter(user=user).delete()
        quota = None
    else:
        quota, _ = Quota.objects.update_or_create(user=user, defaults=limits)
    audit(actor=actor, action="quota.set", target=f"user:{user.pk}" if user else "user:everybody", **limits)
    return quota
