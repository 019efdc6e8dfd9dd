"""GPU quotas limit how many GPUs the runs of a user or of a project train on at once. Enforced when a trainer takes
a run.

A run uses one GPU per trainer process (`parallel.world_size`). Running training continues; a queued run waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection
from django.db.models import CharField, Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Cast, Concat, Now

from composer_web.accounts.access import everywhere
from composer_web.core.models import Lease
from composer_web.quotas import limits
from composer_web.quotas.models import Quota

if TYPE_CHECKING:
    from composer_web.runs.models import Run

LOCK = (0x6F64, 0)


def of_run(run: Run) -> int:
    return int(run.config.get("stage", {}).get("parallel", {}).get("world_size", 1))


def used(*, user_id: int | None = None, project_id: int | None = None, but: int | None = None) -> int:
    """GPUs of the runs in training, except the run `but`, of a project if given, else of a user."""
    whose = {"project": project_id} if project_id is not None else {"created_by": user_id}
    with everywhere():  # also when a page of one project asks
        return sum(of_run(run) for run in trained().filter(**whose).only("config") if run.pk != but)


def trained() -> QuerySet[Run]:
    """Runs in training, or just taken by a trainer."""
    from composer_web.runs.models import Run

    its_own = Concat(Value("run:"), Cast(OuterRef("pk"), CharField()))
    taken = Lease.objects.filter(resource=its_own, expires_at__gte=Now()).exclude(owner="")
    return Run.objects.filter(Q(state__in=["running", "pausing"]) | Q(Exists(taken), state="queued")).order_by()


def admitted(run: Run) -> bool:
    """Whether the quotas have room for a queued run. Call it inside the transaction that takes its lease."""
    limits = _limits(run)
    if limits:
        with connection.cursor() as cursor:  # two trainers count one after the other
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", LOCK)
    return all(_used(quota, run) + of_run(run) <= most for quota, most in limits)


def why_waiting(run: Run) -> str:
    """Reason why no trainer takes a queued run, with the remedy. Empty if no quota holds it."""
    for quota, most in _limits(run) if run.state == "queued" else []:
        now, wanted = _used(quota, run), of_run(run)
        if wanted > most:
            return (
                f"The quota {limits.whose(quota)} holds it: it trains on {wanted} GPUs (parallel.world_size) and {most} is the "
                "most. Clone it with fewer ranks, or ask an admin for more."
            )
        if now + wanted > most:
            return (
                f"The quota {limits.whose(quota)} holds it: {now} of {most} GPUs are in use and it needs {wanted}. "
                "It starts as they end; pause another run, or ask an admin for more."
            )
    return ""


def _limits(run: Run) -> list[tuple[Quota, int]]:
    found = limits.of(user_id=run.created_by_id, project_id=run.project_id)
    return [(quota, quota.gpus) for quota in found if quota.gpus is not None]


def _used(quota: Quota, run: Run) -> int:
    whose = {"project_id": quota.project_id} if quota.project_id else {"user_id": run.created_by_id}
    return used(**whose, but=run.pk)
