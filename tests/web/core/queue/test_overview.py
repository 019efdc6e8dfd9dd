"""Which silent processes are a fault: those that nothing replaced."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from composer_web.core.models import WorkerHeartbeat
from composer_web.core.queue import overview

pytestmark = pytest.mark.django_db


def beat(name: str, *, kind: str = "train", started: float, last: float) -> None:
    """A process that started and last reported so many minutes ago."""
    now = timezone.now()
    WorkerHeartbeat.objects.create(
        name=name,
        kind=kind,
        pid=1,
        started_at=now - timedelta(minutes=started),
        beat_at=now - timedelta(minutes=last),
    )


def test_a_process_that_was_restarted_is_replaced() -> None:
    beat("train@a/1", started=60, last=20)
    beat("train@a/2", started=19, last=0)
    assert {worker.name: worker.state for worker in overview.workers()} == {
        "train@a/1": "replaced",
        "train@a/2": "alive",
    }
    assert overview.offline() == []


def test_one_of_several_that_died_is_offline() -> None:
    beat("train@a/1", started=60, last=20)
    beat("train@b/1", started=60, last=0)
    beat("build@a/1", kind="build", started=60, last=20)
    beat("clock@a/1", kind="clock", started=10, last=0)
    assert {worker.name for worker in overview.offline()} == {"train@a/1", "build@a/1"}
