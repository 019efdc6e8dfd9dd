"""Metrics of a run over its steps, in buckets that can be extended.

A bucket's width is a power of two, and it starts at a multiple of its width. A longer run therefore has the buckets of
the shorter one, except for the last one and for pairs that are merged. A page that holds a series only needs its new
end (`Tail`) to hold the same data as a fresh read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.db import connection

from composer_web.runs.models import Run

Row = tuple[int, float, float, float]
"""A bucket as drawn on the page: last step, minimum, maximum, last value."""
T = TypeVar("T")
Tail = tuple[int, list[T]]
"""Update of a list: number of leading items kept, and the items that follow them."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Values of one metric in steps [first, last]: minimum, maximum and last value, so that no spike is lost."""

    first: int
    last: int
    low: float
    high: float
    value: float
    """Value at `last`."""
    count: int
    x: float
    """Position of `value` on the requested axis (`runs/charts/axes.py`): step, seconds or tokens."""


@dataclass(frozen=True, slots=True)
class Line:
    """A metric over all steps of a run."""

    first: int
    """First step. Together with the last step, it determines the bucket width."""
    rows: list[Row]


_SPANS = """
SELECT k.name, low.step, high.step FROM runs_metrickey k,
    LATERAL (SELECT step FROM runs_metric WHERE run_id = %(run)s AND key_id = k.id
             AND step >= %(first)s AND step <= %(last)s ORDER BY step LIMIT 1) low,
    LATERAL (SELECT step FROM runs_metric WHERE run_id = %(run)s AND key_id = k.id
             AND step >= %(first)s AND step <= %(last)s ORDER BY step DESC LIMIT 1) high
WHERE k.name = ANY(%(names)s)
"""
_BUCKETS = """
SELECT k.name, min(m.step), max(m.step), min(m.value), max(m.value), (array_agg(m.value ORDER BY m.step DESC))[1], count(*)
FROM unnest(%(names)s::text[], %(first)s::int[], %(last)s::int[], %(widths)s::int[]) AS asked(name, first, last, width)
JOIN runs_metrickey k ON k.name = asked.name
JOIN runs_metric m ON m.run_id = %(run)s AND m.key_id = k.id AND m.step >= asked.first AND m.step <= asked.last
GROUP BY k.name, m.step / asked.width ORDER BY 1, 2
"""
LAST_STEP = 2**31 - 1


def width(low: int, high: int, count: int) -> int:
    """Smallest power of two that covers steps [low, high] in at most `count` buckets."""
    found = 1
    while high // found - low // found >= max(1, count):
        found *= 2
    return found


def buckets(
    run: Run, names: Iterable[str], *, count: int = 500, first: int | None = None, last: int | None = None
) -> dict[str, list[Bucket]]:
    """Each metric over steps [first, last] in at most `count` ordered buckets; [] without values. Two queries for
    any number of metrics."""
    found: dict[str, list[Bucket]] = {name: [] for name in names}
    limits = {"first": max(0, first or 0), "last": LAST_STEP if last is None else min(last, LAST_STEP)}
    if not found or limits["last"] < limits["first"]:
        return found
    with connection.cursor() as cursor:
        cursor.execute(_SPANS, {"run": run.pk, "names": list(found), **limits})
        spans = cursor.fetchall()
    return found | _read(run, [(name, low, high, width(low, high, count)) for name, low, high in spans])


def lines(run: Run, names: Iterable[str], *, count: int) -> dict[str, Line]:
    """Lines of the metrics that have values."""
    return {name: _line(found) for name, found in buckets(run, names, count=count).items() if found}


def carried_on(
    run: Run, names: Iterable[str], before: Mapping[str, Line], *, since: int, count: int
) -> dict[str, Line]:
    """Extend `before` to the current result of `lines`, provided that no step before `since` has changed. Reads only
    the newest buckets, and all buckets of metrics without earlier values."""
    asked: list[tuple[str, int, int, int]] = []
    kept: dict[str, list[Row]] = {}
    for name, line in before.items():
        wide = width(line.first, line.rows[-1][0], count)
        start = since // wide * wide
        kept[name] = [row for row in line.rows if row[0] < start]
        asked.append((name, start, LAST_STEP, wide))
    now = lines(run, set(names) - before.keys(), count=count)
    for name, found in _read(run, asked).items():
        if kept[name]:
            now[name] = _narrowed(Line(before[name].first, [*kept[name], *map(_row, found)]), count)
        elif found:
            now[name] = _narrowed(_line(found), count)
    return now


def tail(before: Sequence[T], now: Sequence[T]) -> Tail[T] | None:
    """Difference between `before` and `now`. None if they are equal."""
    same = next((at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), None)
    if same is None:
        if len(before) == len(now):
            return None
        same = min(len(before), len(now))
    return same, list(now[same:])


def _read(run: Run, asked: Sequence[tuple[str, int, int, int]]) -> dict[str, list[Bucket]]:
    """Buckets for (name, first step, last step, width)."""
    if not asked:
        return {}
    names, first, last, widths = (list(column) for column in zip(*asked, strict=True))
    found: dict[str, list[Bucket]] = {name: [] for name in names}
    with connection.cursor() as cursor:
        cursor.execute(_BUCKETS, {"run": run.pk, "names": names, "first": first, "last": last, "widths": widths})
        for name, start, end, low, high, value, many in cursor.fetchall():
            found[name].append(Bucket(start, end, low, high, value, many, x=end))
    return found


def _line(found: Sequence[Bucket]) -> Line:
    return Line(found[0].first, [_row(bucket) for bucket in found])


def _row(bucket: Bucket) -> Row:
    return bucket.last, bucket.low, bucket.high, bucket.value


def _narrowed(line: Line, count: int) -> Line:
    """Merge pairs of buckets until at most `count` remain."""
    wide = width(line.first, line.rows[-1][0], count)
    joined: list[Row] = []
    for row in line.rows:
        if joined and joined[-1][0] // wide == row[0] // wide:
            _, low, high, _ = joined[-1]
            joined[-1] = (row[0], min(low, row[1]), max(high, row[2]), row[3])
        else:
            joined.append(row)
    return Line(line.first, joined)
