"""The batch of a run's next step. It is recorded once, when the trainer wants it and enough groups are accepted.

The trainer names the step that it wants (`want`). Whoever makes the batch possible then records it: the trainer itself,
a worker whose group was accepted or dropped, or the periodic pump. One transaction holds the record and the message
`train.step` to the run's worker, so every recorded step is dispatched. `runs/training/redispatch.py` resends lost
messages.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from django.db import Error, connection, transaction
from django.dispatch import receiver
from django.utils import timezone

from composer_web.core.artifacts import MAX_GROUP_BYTES, ArtifactError, ArtifactUnusable, artifacts
from composer_web.core.queue import leases
from composer_web.live.hints import hint
from composer_web.rollouts.dispatch import scheduling
from composer_web.rollouts.dispatch.services import consume, drop_stale, drop_unusable
from composer_web.rollouts.models import Group
from composer_web.rollouts.signals import group_ended
from composer_web.runs.messages import send_step
from composer_web.runs.models import Run, RunState, TrainBatch
from composer_web.runs.services import record_batch
from trainer.config import RLConfig
from trainer.orchestrator.batch_scheduler import BatchSchedule, schedule_batch

log = logging.getLogger(__name__)

LOCK = 0x6F65
"""Class of the advisory lock, with the run's id, under which one batch of a run is chosen at a time."""


@transaction.atomic
def want(*, run: Run, held: leases.Held, step: int) -> None:
    """Record that the trainer that holds the run waits for the batch of this step. Raises LeaseLost."""
    leases.require(held)
    Run.objects.filter(pk=run.pk).exclude(wanted_step=step).update(wanted_step=step, wanted_at=timezone.now())
    hint(f"run:{run.pk}")


def taken(*, run: Run, step: int) -> None:
    """Record that the trainer has the batch. No further message about this step is needed."""
    Run.objects.filter(pk=run.pk, wanted_step=step).update(wanted_step=None, wanted_at=None)


def recorded(run: Run, step: int) -> list[int] | None:
    """Groups of the step in training order. None until they are recorded."""
    found = TrainBatch.objects.filter(run=run, step=step).values_list("group_ids", flat=True).first()
    return None if found is None else list(found)


def choice(run: Run, stage: RLConfig, step: int) -> tuple[BatchSchedule, dict[int, int]]:
    """Scheduler's current choice for the step, and the group of each prompt."""
    entries = scheduling.entries(run)
    chosen = schedule_batch(
        [place for place, _ in entries],
        step=step,
        groups_per_step=stage.groups_per_step,
        window=stage.window_groups,
        staleness_limit=stage.staleness_limit,
    )
    return chosen, {place.prompt: pk for place, pk in entries}


@transaction.atomic
def assign(*, run_id: int, held: leases.Held | None = None) -> bool:
    """Record the batch that the run's trainer waits for, if there are groups for it; whether it is recorded now.

    Groups whose training data cannot be read are dropped instead: a recorded batch is trained on whatever happens. With
    `held`, for the trainer: proves its lease first. Raises LeaseLost, ArtifactError.
    """
    if held is not None:
        leases.require(held)
    run = Run.objects.get(pk=run_id)
    if run.wanted_step is None or run.state != RunState.RUNNING:
        return False
    stage = run.configuration.stage
    if not isinstance(stage, RLConfig) or stage.sessions.channel:
        return False  # users make the rollouts of sessions: `runs/training/sessions.py`
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK, run_id])
    step = Run.objects.values_list("wanted_step", flat=True).get(pk=run_id)  # as it is under the lock
    if step is None:
        return False
    if recorded(run, step) is not None:
        return True
    ids = _readable(run, stage, step)
    if ids is None:
        return False
    consume(run=run, group_ids=ids, step=step)
    record_batch(run=run, step=step, group_ids=ids)
    send_step(run_id, step)
    return True


def _readable(run: Run, stage: RLConfig, step: int) -> list[int] | None:
    """Groups to train on, whose data can be read; None while there are too few. Drops the others."""
    while True:
        chosen, groups = choice(run, stage, step)
        if chosen.stale:
            drop_stale(run=run, group_ids=[groups[prompt] for prompt in chosen.stale], step=step)
        if chosen.batch is None:
            return None
        ids = [groups[prompt] for prompt in chosen.batch]
        if not (unusable := _unusable(ids)):
            return ids
        drop_unusable(run=run, unusable=unusable, step=step)


def _unusable(ids: list[int]) -> dict[int, str]:
    """Groups whose training data is gone or damaged, with the reason. Raises ArtifactError if the store does not answer."""
    found = {}
    for pk, key in Group.objects.filter(pk__in=ids).values_list("pk", "train_key"):
        try:
            artifacts().verify(key, max_bytes=MAX_GROUP_BYTES)
        except ArtifactUnusable as error:
            found[pk] = str(error)
    return found


@receiver(group_ended)
def assign_later(*, run_id: int, **_: Any) -> None:
    """Call `assign` after the current transaction. Its errors do not fail the transaction; the periodic pump
    retries."""
    transaction.on_commit(partial(_assign_quietly, run_id), robust=True)


def _assign_quietly(run_id: int) -> None:
    try:
        assign(run_id=run_id)
    except (
        Error,
        AssertionError,
        ArtifactError,
    ) as error:  # a lost connection, a deadlock, a group that was quarantined meanwhile
        log.warning("run %d: no batch was recorded now: %s", run_id, error)
