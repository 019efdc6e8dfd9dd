"""Read queries of the home and system pages: live processes and leases. (Service health: `composer_web.system.health`.)"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from composer_web.core.models import Lease, WorkerHeartbeat
from composer_web.core.queue.heartbeats import SILENT_SECONDS


@dataclass(frozen=True)
class Worker:
    name: str
    kind: str
    pid: int
    started_at: datetime
    beat_at: datetime
    detail: dict[str, Any]
    state: str
    """"alive"; after `SILENT_SECONDS` without a heartbeat "dead", or "replaced"."""


def workers() -> list[Worker]:
    """All known processes. One that fell silent and whose place a younger living one of its kind took is "replaced": a
    restarted process has another name, and the row of its predecessor stays for an hour."""
    limit = timezone.now() - timedelta(seconds=SILENT_SECONDS)
    rows = list(WorkerHeartbeat.objects.all())
    newest: dict[str, datetime] = {}
    for row in rows:
        if row.beat_at > limit:
            newest[row.kind] = max(row.started_at, newest.get(row.kind, row.started_at))
    return [
        Worker(row.name, row.kind, row.pid, row.started_at, row.beat_at, row.detail, _state(row, limit, newest))
        for row in rows
    ]


def _state(row: WorkerHeartbeat, limit: datetime, newest: dict[str, datetime]) -> str:
    if row.beat_at > limit:
        return "alive"
    return "replaced" if row.kind in newest and newest[row.kind] >= row.beat_at else "dead"


def offline() -> list[Worker]:
    """Silent processes that nothing replaced."""
    return [worker for worker in workers() if worker.state == "dead"]


def leases() -> QuerySet[Lease]:
    """Held leases, oldest heartbeat first."""
    return Lease.objects.exclude(owner="").order_by("heartbeat_at")
