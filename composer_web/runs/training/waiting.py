"""What a run waits for, in one sentence: the run before it, a worker of its pool, a busy worker, a quota, or a batch."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Count
from django.utils import timezone

from composer_web.core.models import WorkerHeartbeat
from composer_web.core.queue.heartbeats import SILENT_SECONDS
from composer_web.quotas import gpus
from composer_web.runs import chain
from composer_web.runs.messages import holder, queue_of
from composer_web.runs.models import Run, RunState, TrainBatch
from composer_web.runs.train_queues import pool_queue, pool_title, worker_command


def waits_for(run: Run) -> str:
    """Empty for a run that waits for nothing."""
    if run.state == RunState.QUEUED:
        return chain.why_waiting(run) or gpus.why_waiting(run) or _worker(run)
    if run.state in (RunState.RUNNING, RunState.PAUSING) and holder(run.pk) is None:
        return f"Its train worker was lost. {_worker(run)}"
    if run.state == RunState.RUNNING and run.wanted_step is not None:
        return _batch(run, run.wanted_step)
    return ""


def _worker(run: Run) -> str:
    queue = queue_of(run)
    pool = pool_title(queue)
    since = timezone.now() - timedelta(seconds=SILENT_SECONDS)
    workers = [
        (worker.name, worker.detail.get("run"))
        for worker in WorkerHeartbeat.objects.filter(kind="train", beat_at__gte=since)
        if queue in [pool_queue("" if name == "default" else name) for name in worker.detail.get("pools", [])]
    ]
    if not workers:
        return (
            f"It waits for a worker of the pool {pool}, and none is alive: start `{worker_command(queue)}` where its GPUs "
            "are."
        )
    busy = [f"{name} trains run {current}" for name, current in workers if current]
    if len(busy) == len(workers):
        return f"It waits for a free worker of the pool {pool}: {', '.join(busy)}."
    return f"A worker of the pool {pool} takes it in a moment."


def _batch(run: Run, step: int) -> str:
    if TrainBatch.objects.filter(run=run, step=step).exists():
        return f"Step {step} is dispatched."
    wanted = run.config["stage"].get("groups_per_step", 1)
    if run.config["stage"].get("sessions", {}).get("channel"):
        return f"Step {step} waits for {wanted} sessions of users that can be trained on."
    counts = dict(run.groups.values_list("state").annotate(count=Count("pk")).order_by())
    ready, playing, sent = (counts.get(state, 0) for state in ("accepted", "running", "dispatched"))
    text = (
        f"Step {step} waits for its batch: {ready} of {wanted} groups are accepted, {playing} are played, {sent} wait for a "
        "rollout worker."
    )
    return text if ready + playing + sent else f"{text} None is dispatched: see its quotas and the inference engine."
