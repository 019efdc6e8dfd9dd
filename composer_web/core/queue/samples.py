"""Writes what workers use of their machines, and bounds how much of it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import connection
from django.utils import timezone

from composer_web.core.models import WorkerSample
from composer_web.env import env
from composer_web.live.hints import hint
from trainer.usage import Usage

TOPIC = "usage"
WHOLE = timedelta(days=1)
"""Every sample is kept for this long."""
THIN = "5 minutes"
"""Older samples: one of a worker in this long stays, the one with the most memory, so that no peak is lost."""


def record(*, worker: str, kind: str, usage: Usage, runs: Sequence[int] = ()) -> WorkerSample:
    """`runs` are those that the worker works for."""
    measured = usage.model_dump(exclude={"pid"})
    made = WorkerSample.objects.create(
        worker=worker[:120], kind=kind, at=timezone.now(), runs=sorted(set(runs)), **measured
    )
    hint(TOPIC)
    return made


def prune() -> int:
    """Thin samples that are older than a day, and delete those past the retention. Returns how many were deleted."""
    now = timezone.now()
    expired = WorkerSample.objects.filter(at__lt=now - timedelta(days=env().system_metrics_days)).delete()[0]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM ops_workersample WHERE id IN (
                SELECT id FROM (
                    SELECT id, row_number() OVER (
                        PARTITION BY worker, date_bin(%s::interval, at, 'epoch') ORDER BY memory DESC, id
                    ) AS place
                    FROM ops_workersample WHERE at < %s
                ) ranked WHERE place > 1
            )
            """,
            [THIN, now - WHOLE],
        )
        return expired + cursor.rowcount
