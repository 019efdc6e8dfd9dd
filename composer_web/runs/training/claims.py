"""Claim a run for a train worker, and release it. One transaction each."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models.functions import Now

from composer_web.core.models import Lease
from composer_web.core.queue import leases
from composer_web.env import env
from composer_web.quotas import gpus
from composer_web.runs import chain, services
from composer_web.runs.messages import holder, lease_name, send_run
from composer_web.runs.models import Run, RunState

MAX_LOST_IN_A_ROW = 10
"""Give up on a run after losing its trainer this often without a new checkpoint: something in it kills the process."""
WANTS_A_TRAINER = (RunState.QUEUED, RunState.RUNNING, RunState.PAUSING)
BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 2.0, 30.0


@transaction.atomic
def claim(*, run_id: int, owner: str) -> leases.Held | None:
    """The lease of a run that is to be trained, with the run in state `running`; None when there is nothing to do.

    There is nothing to do for a run that ended, that another worker holds, that starts after one which has not finished,
    that the quotas have no GPU for, that was asked to pause while nobody had it (it is paused), or that keeps losing its
    trainers (it fails).
    """
    held = leases.take(lease_name(run_id), owner=owner, seconds=env().trainer_lease_seconds)
    if held is None:
        return None
    run = Run.objects.select_for_update(of=("self",)).filter(pk=run_id).first()
    if run is not None and _to_be_trained(run):
        services.mark_running(run=run, owner=owner)
        return held
    leases.release(held)
    return None


def _to_be_trained(run: Run) -> bool:
    if run.state == RunState.PAUSING:
        services.mark_paused(run=run)
        return False
    if run.state == RunState.QUEUED:
        return not chain.why_waiting(run) and gpus.admitted(run)
    if run.state != RunState.RUNNING:
        return False
    if run.lost_in_a_row >= MAX_LOST_IN_A_ROW:
        cause = (
            f"its trainer was lost {run.lost_in_a_row} times since the last checkpoint; see the log of the train worker, then "
            "resume it"
        )
        services.mark_failed(run=run, cause=cause)
        return False
    return True


@transaction.atomic
def give_up(*, held: leases.Held, run_id: int, crashed: bool = False) -> None:
    """Release the lease. A run that is still to be trained returns to its queue; after a crash, with a growing
    delay."""
    leases.release(held)
    run = Run.objects.get(pk=run_id)
    if run.state in WANTS_A_TRAINER and holder(run_id) is None:
        wait = min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * run.lost_in_a_row) if crashed else 0.0
        send_run(run, delay=wait)


@transaction.atomic
def give_up_all(*, owner: str) -> Sequence[int]:
    """Release the runs held by an earlier, killed process of the same worker. Returns the run ids."""
    found = Lease.objects.select_for_update().filter(owner=owner, resource__startswith=lease_name(0)[:-1])
    runs = [int(lease.resource.partition(":")[2]) for lease in found]
    found.update(owner="", expires_at=Now())
    for run in Run.objects.filter(pk__in=runs, state__in=WANTS_A_TRAINER):
        send_run(run)
    return runs
