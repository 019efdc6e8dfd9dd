"""Read queries of CPU, memory, network, disk and GPU use: now, over time, and of the workers of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from composer_web.core.models import WorkerSample
from trainer.usage import SAMPLE_SECONDS

CURRENT = timedelta(seconds=4 * SAMPLE_SECONDS)
"""An older sample says nothing about now."""
SPARK = timedelta(minutes=30)
SPARK_POINTS = 60
WORKER_MEASURES = ("cpu", "memory")
HOST_MEASURES = ("host_cpu", "host_memory", "received", "sent", "disk_read", "disk_written")
GPU_MEASURES = ("gpu", "gpu_memory", "gpu_power")
"""Measures of each GPU: utilisation and memory as shares, power in watts."""


@dataclass(frozen=True, slots=True)
class Line:
    """One measure of a worker, a host or a GPU of a host. `key` is `measure/subject`."""

    key: str
    measure: str
    subject: str


@dataclass(frozen=True, slots=True)
class Point:
    """Samples of one span of time."""

    seconds: float
    """Time of the newest sample, from the origin."""
    low: float
    high: float
    mean: float
    count: int


@dataclass(frozen=True, slots=True)
class Source:
    """A worker that reported in a range of time."""

    worker: str
    kind: str
    host: str
    gpus: int


# A host is measured by each of its workers; the mean of a bucket is that of all. A trainer that meanwhile worked for another
# run is left out: what it used then was not this run's.
_POINTS = """
WITH rows AS (
    SELECT *, extract(epoch FROM at - %(origin)s)::double precision AS x FROM ops_workersample
    WHERE worker = ANY(%(workers)s)
      AND at BETWEEN %(origin)s + %(first)s * interval '1 second' AND %(origin)s + %(last)s * interval '1 second'
      AND (%(run)s::bigint IS NULL OR kind <> 'train' OR runs = '{}' OR runs @> ARRAY[%(run)s::bigint])
), points AS (
    SELECT x, found.key, found.value FROM rows, LATERAL (VALUES
        ('cpu/' || worker, cpu), ('memory/' || worker, memory),
        ('host_cpu/' || host, host_cpu), ('host_memory/' || host, host_memory::double precision / host_memory_total),
        ('received/' || host, received), ('sent/' || host, sent),
        ('disk_read/' || host, disk_read), ('disk_written/' || host, disk_written)
    ) AS found(key, value) WHERE found.key = ANY(%(keys)s)
    UNION ALL
    SELECT x, found.key, found.value FROM rows, jsonb_array_elements(gpus) AS one, LATERAL (VALUES
        ('gpu/' || host || ' ' || (one->>'index'), (one->>'utilisation')::double precision),
        ('gpu_memory/' || host || ' ' || (one->>'index'),
            (one->>'memory')::double precision / nullif((one->>'memory_total')::double precision, 0)),
        ('gpu_power/' || host || ' ' || (one->>'index'), (one->>'power')::double precision)
    ) AS found(key, value) WHERE found.key = ANY(%(keys)s)
)
SELECT key, max(x), min(value), max(value), avg(value), count(*) FROM points
WHERE value IS NOT NULL GROUP BY key, floor(x / %(width)s) ORDER BY key, max(x)
"""


def sources(*, first: datetime, last: datetime, run: int | None = None) -> list[Source]:
    """Workers with a sample in the range, of `run` alone if given; trainers first, then engines."""
    rows = WorkerSample.objects.filter(at__gte=first, at__lte=last)
    if run is not None:
        rows = rows.filter(runs__contains=[run])
    newest = rows.order_by("worker", "-at").distinct("worker")
    found = [Source(one.worker, one.kind, one.host, len(one.gpus)) for one in newest]
    order = {"train": 0, "engine": 1, "rollout": 2}
    return sorted(found, key=lambda one: (order.get(one.kind, 3), one.worker))


def lines(found: Sequence[Source]) -> list[Line]:
    """Everything that is measured of these workers, and of their hosts."""
    made = [_line(measure, one.worker) for measure in WORKER_MEASURES for one in found]
    gpus: dict[str, int] = {}
    for one in found:
        gpus[one.host] = max(one.gpus, gpus.get(one.host, 0))
    made += [_line(measure, host) for measure in HOST_MEASURES for host in gpus]
    return made + [
        _line(measure, f"{host} {index}")
        for measure in GPU_MEASURES
        for host, count in gpus.items()
        for index in range(count)
    ]


def _line(measure: str, subject: str) -> Line:
    return Line(f"{measure}/{subject}", measure, subject)


def series(
    keys: Collection[str],
    *,
    workers: Collection[str],
    origin: datetime,
    first: float = 0.0,
    last: float,
    resolution: float = SAMPLE_SECONDS,
    run: int | None = None,
) -> dict[str, list[Point]]:
    """Each line over [first, last] seconds from `origin`, a point every `resolution` seconds at most. One query."""
    found: dict[str, list[Point]] = {key: [] for key in keys}
    if not found or not workers or last <= first:
        return found
    asked: dict[str, Any] = {
        "workers": list(workers),
        "keys": list(found),
        "origin": origin,
        "first": first,
        "last": last,
        "run": run,
    }
    with connection.cursor() as cursor:
        cursor.execute(_POINTS, {**asked, "width": max(resolution, SAMPLE_SECONDS)})
        for key, seconds, low, high, mean, count in cursor.fetchall():
            found[key].append(Point(seconds, low, high, mean, count))
    return found


def current() -> dict[str, WorkerSample]:
    """Newest sample of each worker that reports now, by name."""
    rows = WorkerSample.objects.filter(at__gte=timezone.now() - CURRENT)
    return {one.worker: one for one in rows.order_by("worker", "-at").distinct("worker")}


def sparks(now: Collection[WorkerSample]) -> dict[str, list[float]]:
    """Curves of the last half hour of these workers and their hosts, by `measure/subject`. One query."""
    found = [Source(one.worker, one.kind, one.host, len(one.gpus)) for one in now]
    points = series(
        [line.key for line in lines(found)],
        workers=[one.worker for one in found],
        origin=timezone.now() - SPARK,
        last=SPARK.total_seconds(),
        resolution=SPARK.total_seconds() / SPARK_POINTS,
    )
    return {key: [point.mean for point in row] for key, row in points.items()}


@dataclass(frozen=True)
class Total:
    """All hosts that report, together."""

    hosts: int
    cpu: float
    """Busy share of all cores."""
    memory: int
    memory_total: int
    gpus: int
    gpu: float | None
    """Mean utilisation of the GPUs that report it."""
    gpu_memory: int
    gpu_memory_total: int


def hosts(now: Collection[WorkerSample]) -> list[WorkerSample]:
    """The newest of these samples for each host."""
    found: dict[str, WorkerSample] = {}
    for one in now:
        if one.host not in found or found[one.host].at < one.at:
            found[one.host] = one
    return [found[name] for name in sorted(found)]


def total(now: Collection[WorkerSample]) -> Total | None:
    """None if nothing reports."""
    found = hosts(now)
    if not found:
        return None
    cores = sum(one.host_cores for one in found)
    gpus = [gpu for one in found for gpu in one.gpus]
    busy = [gpu["utilisation"] for gpu in gpus if gpu["utilisation"] is not None]
    return Total(
        hosts=len(found),
        cpu=sum(one.host_cpu * one.host_cores for one in found) / max(1, cores),
        memory=sum(one.host_memory for one in found),
        memory_total=sum(one.host_memory_total for one in found),
        gpus=len(gpus),
        gpu=sum(busy) / len(busy) if busy else None,
        gpu_memory=sum(gpu["memory"] for gpu in gpus),
        gpu_memory_total=sum(gpu["memory_total"] for gpu in gpus),
    )
