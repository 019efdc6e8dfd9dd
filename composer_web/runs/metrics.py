"""Writes of metrics, by COPY. (Bucketed reads: series.py.)"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import numpy as np
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.utils import timezone
from psycopg.errors import UniqueViolation

from composer_web.live.hints import hint
from composer_web.runs.models import MetricKey, Run

MAX_NAME = 100
COLUMNS = "run_id, key_id, step, value, at"
COPY_ROW = np.dtype(
    [
        ("fields", ">i2"),
        ("run_bytes", ">i4"), ("run", ">i8"),
        ("key_bytes", ">i4"), ("key", ">i8"),
        ("step_bytes", ">i4"), ("step", ">i4"),
        ("value_bytes", ">i4"), ("value", ">f8"),
        ("at_bytes", ">i4"), ("at", ">i8"),
    ]
)  # fmt: skip
"""Row of COLUMNS in COPY's binary format, which takes a third of the time of the text format."""
COPY_HEAD, COPY_TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
CURVES = {"rl": "reward/mean", "sft": "loss/train", "midtrain": "loss/train"}
"""Kind of run → the metric whose last points are stored with the run, for the sparkline in lists."""
POINTS = 40
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Postgres counts microseconds from this date."""


def key_ids(names: Iterable[str]) -> dict[str, int]:
    """Ids of metric names. Missing names are created."""
    wanted = set(names)
    known = dict(MetricKey.objects.filter(name__in=wanted).values_list("name", "id"))
    if missing := wanted - known.keys():
        MetricKey.objects.bulk_create([MetricKey(name=name) for name in sorted(missing)], ignore_conflicts=True)
        known = dict(MetricKey.objects.filter(name__in=wanted).values_list("name", "id"))
    return known


@transaction.atomic
def record(*, run: Run, step: int, values: Mapping[str, float]) -> int:
    """Store the metrics of one step and the run's latest values; a repeated step replaces its numbers.

    Values that are not finite are left out (and counted as absent): a NaN loss is an event, not a point.
    """
    return record_many(run=run, rows=[(step, name, value) for name, value in values.items()])


@transaction.atomic
def record_many(*, run: Run, rows: Iterable[tuple[int, str, float]]) -> int:
    """(step, name, value) rows by one binary COPY. Returns rows stored.

    Steps that are there already (a resumed run trains them again) are found by the key: then, and only then, the rows go
    through a staging table and replace what was there.
    """
    finite = {(name[:MAX_NAME], step): float(value) for step, name, value in rows if math.isfinite(value)}
    if not finite:
        return 0
    encoded = _encoded(run.pk, key_ids({name for name, _ in finite}), finite, timezone.now())
    with connection.cursor() as cursor:
        try:
            with transaction.atomic():
                _copy(cursor, "runs_metric", encoded)
        except UniqueViolation:
            cursor.execute("CREATE TEMP TABLE IF NOT EXISTS metric_staging (LIKE runs_metric) ON COMMIT DELETE ROWS")
            cursor.execute("DELETE FROM metric_staging")
            _copy(cursor, "metric_staging", encoded)
            cursor.execute(
                f"INSERT INTO runs_metric ({COLUMNS}) SELECT {COLUMNS} FROM metric_staging"  # noqa: S608 - constants
                " ON CONFLICT (run_id, key_id, step) DO UPDATE SET value = EXCLUDED.value, at = EXCLUDED.at"
            )
    newest: dict[str, tuple[int, float]] = {}
    for (name, step), value in finite.items():
        if name not in newest or step >= newest[name][0]:
            newest[name] = (step, value)
    locked = Run.objects.select_for_update(no_key=True).only("latest", "curve", "kind").get(pk=run.pk)
    locked.latest.update({name: value for name, (_, value) in newest.items()})
    drawn = CURVES[locked.kind]
    locked.curve = carried_on(locked.curve, {step: value for (name, step), value in finite.items() if name == drawn})
    locked.save(update_fields=["latest", "curve"])
    run.latest, run.curve = locked.latest, locked.curve
    hint(f"run:{run.pk}", since=min(step for _, step in finite))
    return len(finite)


def carried_on(curve: Iterable[tuple[int, float]], values: Mapping[int, float]) -> list[list[float]]:
    """Last points of a metric after these values are recorded. A step trained again gets its new value."""
    points = {**{int(step): value for step, value in curve}, **values}
    return [[step, points[step]] for step in sorted(points)[-POINTS:]]


def _encoded(run: int, ids: Mapping[str, int], values: Mapping[tuple[str, int], float], at: datetime) -> bytes:
    """In the order of the index, where neighbours share a page."""
    keys, steps = np.array([ids[name] for name, _ in values]), np.array([step for _, step in values])
    order = np.lexsort((steps, keys))
    rows = np.empty(len(values), COPY_ROW)
    rows["fields"] = 5
    rows["run_bytes"] = rows["key_bytes"] = rows["value_bytes"] = rows["at_bytes"] = 8
    rows["step_bytes"] = 4
    rows["run"], rows["at"] = run, (at - EPOCH) // timedelta(microseconds=1)
    rows["key"], rows["step"] = keys[order], steps[order]
    rows["value"] = np.array(list(values.values()))[order]
    return COPY_HEAD + rows.tobytes() + COPY_TAIL


def _copy(cursor: CursorWrapper, table: str, encoded: bytes) -> None:
    with cursor.copy(f"COPY {table} ({COLUMNS}) FROM STDIN (FORMAT binary)") as copy:
        copy.write(encoded)


def names(*runs: Run) -> list[str]:
    """Names of all metrics of these runs, by a skip scan over the key instead of a scan of their points. One query."""
    if not runs:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH RECURSIVE k AS (
                SELECT run_id, (SELECT m.key_id FROM runs_metric m
                                WHERE m.run_id = r.run_id ORDER BY m.key_id LIMIT 1) AS key_id
                FROM unnest(%(runs)s::bigint[]) AS r(run_id)
                UNION ALL
                SELECT run_id, (SELECT m.key_id FROM runs_metric m
                                WHERE m.run_id = k.run_id AND m.key_id > k.key_id ORDER BY m.key_id LIMIT 1)
                FROM k WHERE k.key_id IS NOT NULL
            )
            SELECT DISTINCT n.name FROM k JOIN runs_metrickey n ON n.id = k.key_id ORDER BY n.name
            """,
            {"runs": [run.pk for run in runs]},
        )
        return [name for (name,) in cursor.fetchall()]


def last_update(run: Run) -> datetime | None:
    """Time of the run's newest metric."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(at) FROM runs_metric WHERE run_id = %s", [run.pk])
        found: datetime | None = cursor.fetchone()[0]
        return found
