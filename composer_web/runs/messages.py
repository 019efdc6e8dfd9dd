"""Celery messages about training, sent through the outbox: take a run, train a step, look at the run's state.

`train.run` goes to the queue of the run's pool and `train.step` and `train.look` to the queue of the worker that holds the
run's lease. All are idempotent and none is relied on: rows hold what is to be done, and `redispatch.py` sends lost
messages again.
"""

from __future__ import annotations

from django.utils import timezone

from composer_web.core.models import Lease
from composer_web.core.queue.outbox import enqueue
from composer_web.runs.models import Run
from composer_web.runs.train_queues import pool_of, pool_queue, worker_queue

TAKE, STEP, LOOK = "train.run", "train.step", "train.look"


def lease_name(run_id: int) -> str:
    """Resource name of the lease held by the run's worker."""
    return f"run:{run_id}"


def queue_of(run: Run) -> str:
    """Queue of the run's pool."""
    return pool_queue(pool_of(run.config))


def holder(run_id: int) -> str | None:
    """Owner of the run's lease. None if no live worker holds it."""
    held = Lease.objects.filter(resource=lease_name(run_id), expires_at__gte=timezone.now()).exclude(owner="")
    return held.values_list("owner", flat=True).first()


def send_run(run: Run, *, delay: float = 0.0) -> None:
    """Ask the run's pool for a worker after the transaction commits."""
    enqueue(TAKE, {"run_id": run.pk}, queue=queue_of(run), delay=delay)


def send_step(run_id: int, step: int) -> bool:
    """Tell the run's worker that the batch of `step` is recorded. False without a worker; the next worker will look
    for it."""
    owner = holder(run_id)
    if owner is not None:
        enqueue(STEP, {"run_id": run_id, "step": step}, queue=worker_queue(owner))
    return owner is not None


def send_look(run_id: int) -> bool:
    """Tell the run's worker that the state of the run has changed. False without a worker."""
    owner = holder(run_id)
    if owner is not None:
        enqueue(LOOK, {"run_id": run_id}, queue=worker_queue(owner))
    return owner is not None
