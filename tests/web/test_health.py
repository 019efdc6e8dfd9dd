"""Red lights and what each says to do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from composer_web.ops import health
from composer_web.ops.models import Lease, WorkerHeartbeat

pytestmark = pytest.mark.django_db


def test_messages_that_nobody_takes() -> None:
    assert health._queues({"build": 0, "control": 0})[0]
    ok, message, _ = health._queues({"build": 3, "control": 1})
    assert not ok
    assert "3 in build" in message
    assert "worker -Q build" in message
    now = timezone.now()
    rows = {
        "name": "build@a/1",
        "kind": "build",
        "pid": 1,
        "started_at": now,
        "detail": {"queues": ["build", "control"]},
    }
    worker = WorkerHeartbeat.objects.create(**rows, beat_at=now)
    assert health._queues({"build": 3, "control": 1})[0]
    worker.beat_at = now - timedelta(seconds=60)
    worker.save()
    assert not health._queues({"build": 3})[0]


def test_a_lease_that_nobody_takes_over() -> None:
    now = timezone.now()
    lease = Lease.objects.create(
        resource="run:7", owner="trainer@a/1", token=1, taken_at=now, heartbeat_at=now, expires_at=now
    )
    assert health._leases()[0]  # just expired: the next one is on its way
    lease.expires_at = now - timedelta(seconds=60)
    lease.save()
    ok, message, _ = health._leases()
    assert not ok
    assert "run:7 of trainer@a/1" in message
    assert "make up" in message
