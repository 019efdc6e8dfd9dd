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


def offline() -> list[Worker]:
    """Silent processes that no younger one of their kind replaced. (A restarted process has another name: its predecessor's
    row stays for an hour and is no fault.)"""
    known = workers()
    newest = {kind: max(w.started_at for w in known if w.kind == kind) for kind in {w.kind for w in known}}
    living = {w.kind for w in known if w.state == "alive"}
    return [w for w in known if w.state == "dead" and not (w.kind in living and newest[w.kind] >= w.beat_at)]


def leases() -> QuerySet[Lease]:
    """Held leases, oldest heartbeat first."""
    return Lease.objects.exclude(owner="").order_by("heartbeat_at")
