"""Quotas limit what the runs of a user or of a project may use at once. They are enforced when groups are
dispatched.

A row with neither user nor project applies to every user without a quota of their own. The tighter of the owner's and
the project's quota applies to a run. Groups in flight continue; only new ones are held back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connection, transaction
from django.db.models import Q, Sum

from composer_web.accounts.access import everywhere
from composer_web.accounts.models import Project, User
from composer_web.accounts.services import audit
from composer_web.core.errors import UserError
from composer_web.quotas.models import Quota

if TYPE_CHECKING:
    from composer_web.runs.models import Run

ADVISORY_CLASS = 0x6F63
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Use:
    """Current use of a user's runs: rollouts in flight, bytes of retained checkpoints, share of all rollouts in
    flight."""

    rollouts: int
    bytes: int
    others: int

    @property
    def share(self) -> float:
        everything = self.rollouts + self.others
        return self.rollouts / everything if everything else 0.0


def of(*, user_id: int | None, project_id: int | None) -> list[Quota]:
    """The user's own quota or else the default, and the project's, as far as they exist."""
    rows = Quota.objects.filter(
        Q(user=None, project=None) | Q(user_id=user_id, project=None) | Q(project_id=project_id)
    )
    found = list(rows.select_related("user", "project"))
    own = [row for row in found if row.user_id is not None and row.user_id == user_id]
    everybody = [row for row in found if row.user_id is None and row.project_id is None]
    return [*(own or everybody), *(row for row in found if row.project_id is not None)]


def use(*, user_id: int | None = None, project_id: int | None = None) -> Use:
    """Current use of a project if given, else of a user."""
    from composer_web.policies.models import Checkpoint
    from composer_web.rollouts.models import GROUP_OPEN, Group

    owner = {"project": project_id} if project_id is not None else {"created_by": user_id}
    of_run = Q(**{f"run__{name}": value for name, value in owner.items()})
    of_policy = Q(**{f"policy__produced_by__{name}": value for name, value in owner.items()})
    with everywhere():  # also when a page of one project asks
        groups = Group.objects.filter(state__in=GROUP_OPEN, run__isnull=False)
        counts = groups.aggregate(mine=Sum("size", filter=of_run), all=Sum("size"))
        kept = Checkpoint.objects.filter(of_policy, removed_at=None).aggregate(total=Sum("bytes"))["total"]
    mine = counts["mine"] or 0
    return Use(mine, kept or 0, (counts["all"] or 0) - mine)


def _use(quota: Quota, run: Run) -> Use:
    return use(project_id=quota.project_id) if quota.project_id else use(user_id=run.created_by_id)


def admitted(*, run: Run, wanted: int, group_size: int) -> int:
    """Number of the `wanted` groups that fit the quotas. Call it inside the transaction that dispatches them."""
    held = of(user_id=run.created_by_id, project_id=run.project_id) if wanted > 0 else []
    for quota in held:
        with connection.cursor() as cursor:  # two runs under one quota count one after the other
            # A project's key is below zero, so that it is nobody's.
            key = -quota.project_id if quota.project_id else run.created_by_id or 0
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [ADVISORY_CLASS, key])
        wanted = min(wanted, rollouts_left(quota, _use(quota, run)) // group_size)
    return wanted


def rollouts_left(quota: Quota, now: Use) -> int:
    """Number of rollouts that may still start."""
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
    """Reason why no group of a running run is dispatched, with the remedy. Empty if no quota holds it."""
    if run.state != "running" or run.kind != "rl":
        return ""
    for quota in of(user_id=run.created_by_id, project_id=run.project_id):
        now = _use(quota, run)
        if rollouts_left(quota, now) < group_size:
            return _told(quota, now, group_size)
    return ""


def whose(quota: Quota) -> str:
    """Display name of the quota's owner."""
    if quota.project:
        return f"of the project {quota.project}"
    return f"of {quota.user}" if quota.user else "for everybody"


def _told(quota: Quota, now: Use, group_size: int) -> str:
    told = whose(quota)
    if quota.storage_gib is not None and now.bytes >= quota.storage_gib * GIB:
        return (
            f"The quota {told} holds it: checkpoints take {now.bytes / GIB:.1f} of {quota.storage_gib:g} GiB. Delete "
            "those of older runs (System tab of a run, or `opencomposer files delete RUN checkpoints`), or ask an admin for more."
        )
    if quota.concurrent_rollouts is not None and quota.concurrent_rollouts - now.rollouts < group_size:
        return (
            f"The quota {told} holds it: {now.rollouts} of {quota.concurrent_rollouts} rollouts are in flight and a group "
            f"needs {group_size}. It goes on as they end; pause another run, or ask an admin for more."
        )
    owner = "the project's" if quota.project else "yours"
    return (
        f"The quota {told} holds it: {now.share:.0%} of all rollouts in flight are {owner} and {quota.gpu_share:.0%} "
        "may be while others run. It goes on as they end."
    )


@transaction.atomic
def set_quota(
    *,
    actor: User | None,
    user: User | None = None,
    project: Project | None = None,
    concurrent_rollouts: int | None = None,
    storage_gib: float | None = None,
    gpu_share: float | None = None,
    gpus: int | None = None,
) -> Quota | None:
    """Replace the quota of a person or a project (of everybody without either); all empty removes it. Raises UserError."""
    if user is not None and project is not None:
        raise UserError("project", "a quota is for a person or for a project, not for both")
    if concurrent_rollouts is not None and concurrent_rollouts < 1:
        raise UserError("concurrent_rollouts", "at least 1, or empty for no limit")
    if storage_gib is not None and storage_gib <= 0:
        raise UserError("storage_gib", "more than 0, or empty for no limit")
    if gpu_share is not None and not 0 < gpu_share < 1:
        raise UserError("gpu_share", "between 0 and 1, or empty for no limit")
    if gpus is not None and gpus < 1:
        raise UserError("gpus", "at least 1, or empty for no limit")
    limits = {
        "concurrent_rollouts": concurrent_rollouts,
        "storage_gib": storage_gib,
        "gpu_share": gpu_share,
        "gpus": gpus,
    }
    quota: Quota | None
    if all(limit is None for limit in limits.values()):
        Quota.objects.filter(user=user, project=project).delete()
        quota = None
    else:
        quota, _ = Quota.objects.update_or_create(user=user, project=project, defaults=limits)
    target = f"project:{project.pk}" if project else f"user:{user.pk}" if user else "user:everybody"
    audit(actor=actor, action="quota.set", target=target, **limits)
    return quota
