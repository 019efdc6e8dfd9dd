"""Detects lost training messages and sends them again. The reconciler calls it every few seconds.

A message is lost if its work is not done, no such message was sent recently, and none waits in its queue.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

import redis
from django.db.models import Exists, OuterRef, Q, Subquery
from django.utils import timezone

from composer_web.core.models import Lease, Outbox
from composer_web.env import env
from composer_web.quotas import gpus
from composer_web.runs.chain import WAITING
from composer_web.runs.messages import LOOK, STEP, TAKE, lease_name, queue_of, send_look, send_run, send_step
from composer_web.runs.models import Run, RunState, RunTransition, TrainBatch
from composer_web.runs.train_queues import pool_queues

log = logging.getLogger(__name__)

SILENT = timedelta(seconds=15)
"""Age after which a message without effect counts as lost."""

LostMessage = tuple[Run, str, str]
"""(run, problem, remedy)."""
Sent = tuple[str, int]
"""(task, run) of a message."""


def lost_messages(*, dry_run: bool = False) -> Iterator[LostMessage]:
    """Find lost messages and send them again."""
    old = timezone.now() - SILENT
    alive = Lease.objects.filter(expires_at__gte=timezone.now(), resource__startswith=lease_name(0)[:-1])
    held = set(alive.exclude(owner="").values_list("resource", flat=True))
    open_ = Q(state__in=[RunState.QUEUED, RunState.RUNNING, RunState.PAUSING])
    ended = Q(pk__in=[name for resource in held if (name := resource.partition(":")[2]).isdigit()])
    moved = RunTransition.objects.filter(run=OuterRef("pk")).order_by("-pk").values("at")[:1]
    recorded = TrainBatch.objects.filter(run=OuterRef("pk"), step=OuterRef("wanted_step"))
    lately, waiting = _lately(old), _waiting()
    for run in (
        Run.objects.filter(open_ | ended).exclude(WAITING).annotate(moved_at=Subquery(moved), recorded=Exists(recorded))
    ):
        if lease_name(run.pk) not in held:
            yield from _unclaimed(run, waiting, lately, dry_run)
        elif run.state == RunState.RUNNING:
            yield from _unheard_step(run, run.recorded, old, lately, dry_run)
        elif run.state != RunState.QUEUED and run.moved_at is not None and run.moved_at <= old:
            yield from _unheard_state(run, lately, dry_run)


def _lately(old: datetime) -> set[Sent]:
    """Training messages that are in transit, or were sent since `old`."""
    rows = Outbox.objects.filter(Q(sent_at=None) | Q(sent_at__gte=old), task__in=[TAKE, STEP, LOOK])
    return set(rows.values_list("task", "kwargs__run_id"))


def _waiting() -> set[tuple[str, int]] | None:
    """(queue, run) of each `train.run` that waits in a pool's queue. None if the broker does not answer.

    Messages are read rather than counted: a queue with many runs is never empty, and may lack one. What a worker has
    taken and not acknowledged does not count: that worker may be dead.
    """
    found: set[tuple[str, int]] = set()
    try:
        with redis.Redis.from_url(env().redis_url, socket_timeout=2.0, socket_connect_timeout=2.0) as client:
            for queue in pool_queues(key.decode() for key in client.scan_iter(match="train*", _type="list")):
                asked = [_asks_for(message) for message in client.lrange(queue, 0, -1)]
                found |= {(queue, run_id) for run_id in asked if run_id is not None}
    except redis.RedisError as error:
        log.warning("the broker does not answer: %s", error)
        return None
    return found


def _asks_for(message: bytes) -> int | None:
    """Run that a Celery message asks a worker to take. None for any other message."""
    try:
        envelope = json.loads(message)
        if envelope["headers"]["task"] != TAKE:
            return None
        return int(json.loads(base64.b64decode(envelope["body"]))[1]["run_id"])
    except (ValueError, LookupError, TypeError) as error:
        log.warning("a queue of training holds something else than a message of ours: %s", error)
        return None


def _unclaimed(
    run: Run, waiting: set[tuple[str, int]] | None, lately: set[Sent], dry_run: bool
) -> Iterator[LostMessage]:
    if waiting is None or (queue_of(run), run.pk) in waiting or (TAKE, run.pk) in lately:
        return
    if run.state == RunState.QUEUED and not gpus.admitted(run):
        return
    lost = "its message was lost (not in the queue, not taken)"
    problem = lost if run.state == RunState.QUEUED else "no train worker holds it"
    if not dry_run:
        send_run(run)
    yield run, problem, "send again"


def _unheard_step(run: Run, recorded: bool, old: datetime, lately: set[Sent], dry_run: bool) -> Iterator[LostMessage]:
    """Find a recorded batch that the trainer has not taken. A run on recorded sessions is also woken to look for new
    ones, because sessions become eligible over time."""
    if run.wanted_step is None or run.wanted_at is None or (STEP, run.pk) in lately or run.wanted_at > old:
        return
    if run.config["stage"].get("sessions", {}).get("channel"):
        if not dry_run:
            send_step(run.pk, run.wanted_step)
    elif recorded:
        if not dry_run:
            send_step(run.pk, run.wanted_step)
        yield run, f"its trainer has not heard of the batch of step {run.wanted_step}", "send again"


def _unheard_state(run: Run, lately: set[Sent], dry_run: bool) -> Iterator[LostMessage]:
    if (LOOK, run.pk) in lately:
        return
    if not dry_run:
        send_look(run.pk)
    yield run, f"its trainer has not heard that it is {run.state}", "send again"
