"""Samples of workers: recorded from a real process, bounded, and read over time, by run and in sum."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from composer_web.core.models import WorkerSample
from composer_web.core.queue import samples, usage
from composer_web.core.queue.heartbeats import Presence
from composer_web.env import env

pytestmark = pytest.mark.django_db
GIB = 1 << 30
GPU = {"index": 0, "name": "H100", "utilisation": 0.5, "memory": 20 * GIB, "memory_total": 80 * GIB, "power": 300.0}


def sample(worker: str, at: datetime, **changes: Any) -> WorkerSample:
    kind, _, rest = worker.partition("@")
    measured = {
        "cpu": 1.0, "memory": GIB, "host_cpu": 0.25, "host_cores": 8, "host_memory": 16 * GIB, "host_memory_total": 64 * GIB,
        "received": 100.0, "sent": 50.0,
    }  # fmt: skip
    return WorkerSample.objects.create(
        worker=worker, kind=kind, host=rest.partition("/")[0], at=at, **{**measured, **changes}
    )


def test_a_real_process_reports_itself_and_its_runs() -> None:
    presence = Presence("rollout", runs=lambda: [7, 3, 7])
    presence.sample()
    (found,) = usage.current().values()
    assert (found.worker, found.kind, found.runs) == (presence.name, "rollout", [3, 7])
    assert found.memory > 10 << 20 and found.host_memory_total > found.host_memory > 0 and found.disk_total
    total = usage.total([found])
    assert total is not None and (total.hosts, total.memory) == (1, found.host_memory)


def test_old_samples_are_thinned_and_the_oldest_deleted() -> None:
    now = timezone.now()
    whole = [sample("train@a/1", now - timedelta(hours=1, seconds=15 * n)) for n in range(8)]
    base = (now - timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    for n in range(20):
        sample("train@a/1", base + timedelta(seconds=15 * n), memory=n if n != 7 else 99 * GIB)
    sample("train@a/2", base)
    sample("train@a/1", now - timedelta(days=env().system_metrics_days, hours=1))
    assert samples.prune() == 20
    kept = WorkerSample.objects.filter(at__lt=now - timedelta(days=1)).order_by("worker")
    assert [(one.worker, one.memory) for one in kept] == [("train@a/1", 99 * GIB), ("train@a/2", GIB)], "peaks stay"
    assert WorkerSample.objects.filter(pk__in=[one.pk for one in whole]).count() == 8
    assert samples.prune() == 0


def test_impossible_values_are_refused_by_the_database() -> None:
    now = timezone.now()
    sample("train@a/1", now)
    for changes in ({"host_cpu": 1.5}, {"cpu": -1.0}, {"host_memory_total": 0}, {"at": now}):
        with pytest.raises(IntegrityError), transaction.atomic():
            sample("train@a/1", **{"at": now + timedelta(seconds=1), **changes})


def test_lines_of_a_run_over_time_take_one_query() -> None:
    first = timezone.now() - timedelta(hours=1)
    for n in range(8):
        at = first + timedelta(seconds=15 * n)
        # The trainer works for another run at first, the rollout worker for both all the time.
        sample("train@a/1", at, runs=[5] if n >= 4 else [4], cpu=float(n), gpus=[GPU])
        sample("rollout@a/2", at, runs=[4, 5], host_cpu=0.75, gpus=[GPU])
    sample("io@b/3", first)
    last = first + timedelta(hours=1)
    found = usage.sources(first=first, last=last, run=5)
    assert [(one.worker, one.kind, one.gpus) for one in found] == [
        ("train@a/1", "train", 1),
        ("rollout@a/2", "rollout", 1),
    ]
    lines = usage.lines(found)
    assert {line.key for line in lines} >= {"cpu/train@a/1", "memory/rollout@a/2", "host_cpu/a", "gpu_power/a 0"}
    with CaptureQueriesContext(connection) as seen:
        rows = usage.series(
            [line.key for line in lines],
            workers=[one.worker for one in found],
            origin=first,
            last=3600.0,
            resolution=60.0,
            run=5,
        )
    assert len(seen) == 1
    (point,) = rows["cpu/train@a/1"]
    assert (point.low, point.high, point.mean, point.count) == (4.0, 7.0, 5.5, 4), "not what it did for run 4"
    assert [round(p.seconds) for p in rows["cpu/rollout@a/2"]] == [45, 105]
    assert rows["host_cpu/a"][0].mean == 0.75 and rows["host_cpu/a"][1].mean == 0.5, "of all workers of the host"
    assert (rows["gpu/a 0"][1].mean, rows["gpu_memory/a 0"][1].mean, rows["gpu_power/a 0"][1].high) == (
        0.5,
        0.25,
        300.0,
    )
    assert rows["received/a"][0].mean == 100.0
    zoomed = usage.series(["cpu/train@a/1"], workers=["train@a/1"], origin=first, first=60.0, last=75.0)
    assert [p.mean for p in zoomed["cpu/train@a/1"]] == [4.0, 5.0]
    assert usage.series([], workers=["train@a/1"], origin=first, last=9.0) == {}


def test_all_hosts_together() -> None:
    assert usage.total([]) is None
    now = timezone.now()
    sample("train@a/1", now, host_cpu=1.0, host_cores=24, gpus=[GPU, {**GPU, "index": 1, "utilisation": None}])
    sample("rollout@a/2", now - timedelta(seconds=5), host_cpu=0.0, host_cores=24)
    sample("rollout@b/1", now, host_cpu=0.0)
    sample("io@c/1", now - timedelta(minutes=5))
    found = usage.current()
    assert set(found) == {"train@a/1", "rollout@a/2", "rollout@b/1"}, "c is silent"
    total = usage.total(found.values())
    assert total is not None
    assert (total.hosts, total.cpu, total.memory_total) == (2, 0.75, 128 * GIB), "each host counts once, by its cores"
    assert (total.gpus, total.gpu, total.gpu_memory) == (2, 0.5, 40 * GIB)
