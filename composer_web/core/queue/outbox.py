"""The outbox: a message leaves only after its transaction committed, and then certainly.

`enqueue` writes a row in the caller's transaction. Right after the commit this process sends it; if it dies or the
broker is down, the beat task `ops.flush_outbox` does. Delivery is at least once, so tasks are idempotent.

Equal messages (one task, queue and key) are merged when they are sent, never when they are written. A flusher sees only
committed rows, so the message that it sends starts after every transaction whose row it stands for. A merge at insertion
would lose work: the pending row may be sent, and its task may run, before the transaction that was merged into it commits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from celery import current_app
from django.db import OperationalError, transaction
from django.db.models import F
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from composer_web.core.models import Outbox

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0


def enqueue(task: str, kwargs: dict[str, Any], *, queue: str, key: str | None = None, delay: float = 0.0) -> None:
    """Ask for Celery task `task` once the current transaction commits (`delay` seconds later at the earliest)."""
    enqueue_many([(task, kwargs, queue, key)], delay=delay)


def enqueue_many(messages: Sequence[tuple[str, dict[str, Any], str, str | None]], *, delay: float = 0.0) -> None:
    """Several messages (task, kwargs, queue, key) with one insert. Those with an equal task, queue and key that are due
    together are sent once, with the newest arguments."""
    due = timezone.now() + timedelta(seconds=delay)
    rows = [Outbox(task=task, kwargs=kwargs, queue=queue, key=key, due_at=due) for task, kwargs, queue, key in messages]
    with transaction.atomic():
        Outbox.objects.bulk_create(rows)
        if not delay:
            transaction.on_commit(partial(_flush_quietly, len(rows) + 20), robust=True)


def _flush_quietly(limit: int) -> None:
    try:
        flush(limit=limit)
    except OperationalError as error:
        log.warning("the outbox is flushed later: %s", error)


def flush(*, limit: int = 500) -> int:
    """Send pending messages, oldest first; returns how many rows were sent or merged into one that was.

    Several flushers never send the same row together.
    """
    with transaction.atomic():
        rows = list(
            Outbox.objects.select_for_update(skip_locked=True)
            .filter(sent_at=None, due_at__lte=timezone.now())
            .order_by("due_at", "id")[:limit]
        )
        sent: list[int] = []
        if rows:
            with current_app.producer_or_acquire() as producer:
                for row, merged in _merged(rows):
                    try:
                        current_app.send_task(
                            row.task,
                            kwargs=row.kwargs,
                            queue=row.queue,
                            task_id=f"outbox-{row.pk}-{row.attempts}",
                            producer=producer,
                            retry=False,
                        )
                    except (BrokerError, RedisError, OSError) as error:
                        log.warning(
                            "the broker does not take messages (%s); %d wait in the outbox",
                            error,
                            len(rows) - len(sent),
                        )
                        Outbox.objects.filter(pk__in=[r.pk for r in rows if r.pk not in sent]).update(
                            attempts=F("attempts") + 1, due_at=timezone.now() + timedelta(seconds=RETRY_SECONDS)
                        )
                        break
                    sent += merged
        Outbox.objects.filter(pk__in=sent).update(sent_at=timezone.now(), attempts=F("attempts") + 1)
    return len(sent)


def _merged(rows: Sequence[Outbox]) -> list[tuple[Outbox, list[int]]]:
    """What to send, and the ids of the rows that each message stands for: equal keyed rows go as their newest."""
    groups: dict[object, list[Outbox]] = {}
    for row in rows:
        groups.setdefault(row.pk if row.key is None else (row.task, row.queue, row.key), []).append(row)
    return [(max(equal, key=lambda row: row.pk), [row.pk for row in equal]) for equal in groups.values()]


def prune(*, older_than: timedelta = timedelta(days=2)) -> int:
    """Delete messages that were sent long ago."""
    return Outbox.objects.filter(sent_at__lt=timezone.now() - older_than).delete()[0]
