"""Read queries of the home and system pages: live processes and leases. (Service health: `composer_web.system.health`.)"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from composer_web.core.heartbeats import SILENT_SECONDS
from composer_web.core.models import Lease, WorkerHeartbeat


@dataclass(frozen=True)
class Worker:
    name: str
    kind: str
    pid: int
    started_at: datetime
    beat_at: datetime
    detail: dict[str, Any]
    state: str
    """"alive", or "dead" after `SILENT_SECONDS` without a heartbeat."""


def workers() -> list[Worker]:
    limit = timezone.now() - timedelta(seconds=SILENT_SECONDS)
    return [
        Worker(w.name, w.kind, w.pid, w.started_at, w.beat_at, w.detail, "alive" if w.beat_at > limit else "dead")
        for w in WorkerHeartbeat.objects.all()
    ]


def leases() -> QuerySet[Lease]:
    """Held leases, oldest heartbeat first."""
    return Lease.objects.exclude(owner="").order_by("heartbeat_at")
