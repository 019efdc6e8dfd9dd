"""Metrics over an axis other than the step: seconds since the start of the run, or trained tokens."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from django.db import connection

from composer_web.runs.charts import series
from composer_web.runs.charts.series import Bucket
from composer_web.runs.models import Run

TOKENS = "tokens/trained"


class Axis(StrEnum):
    STEP = "step"
    TIME = "time"
    TOKENS = "tokens"


# Each gives (step, value, x) of one metric of one run; a value that is NULL only carries the sum of tokens on.
_PLACED = {
    Axis.TIME: """
        SELECT m.step, m.value,
               extract(epoch FROM m.at - coalesce(r.started_at, min(m.at) OVER ()))::double precision AS x
        FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id JOIN runs_run r ON r.id = m.run_id
        WHERE m.run_id = %(run)s AND k.name = %(name)s
    """,
    Axis.TOKENS: """
        SELECT step, value, sum(coalesce(tokens, 0)) OVER (ORDER BY step) AS x
        FROM (SELECT m.step, max(m.value) FILTER (WHERE k.name = %(name)s) AS value,
                     max(m.value) FILTER (WHERE k.name = %(tokens)s) AS tokens
              FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id
              WHERE m.run_id = %(run)s AND k.name IN (%(name)s, %(tokens)s) GROUP BY m.step) both_of_step
        WHERE EXISTS (SELECT FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id
                      WHERE m.run_id = %(run)s AND k.name = %(tokens)s)
    """,
}


def buckets(
    run: Run,
    names: Iterable[str],
    *,
    axis: Axis,
    count: int = 500,
    first: float | None = None,
    last: float | None = None,
) -> dict[str, list[Bucket]]:
    """Metrics in at most `count` buckets of equal width over [first, last] of the axis, in order.

    Seconds count from the start of the run; a run that logs no `tokens/trained` has nothing on the axis of tokens.
    """
    if axis == Axis.STEP:
        low, high = (None if edge is None else int(max(-1, min(edge, series.LAST_STEP))) for edge in (first, last))
        return series.buckets(run, names, count=count, first=low, last=high)
    return {name: _placed(run, name, axis=axis, count=count, first=first, last=last) for name in names}


def _placed(run: Run, name: str, *, axis: Axis, count: int, first: float | None, last: float | None) -> list[Bucket]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH placed AS ({_PLACED[axis]}),
            seen AS (SELECT * FROM placed WHERE value IS NOT NULL AND x >= coalesce(%(first)s, x) AND x <= coalesce(%(last)s, x)),
            span AS (SELECT min(x) AS low, nullif(max(x) - min(x), 0) AS width FROM seen)
            SELECT min(step), max(step), min(value), max(value), (array_agg(value ORDER BY x DESC, step DESC))[1],
                   count(*), max(x)
            FROM seen, span
            GROUP BY least(floor(coalesce((x - low) / width, 0) * %(count)s), %(count)s - 1)
            ORDER BY max(x)
            """,  # noqa: S608 (a constant)
            {"run": run.pk, "name": name, "tokens": TOKENS, "first": first, "last": last, "count": max(1, count)},
        )
        return [Bucket(*row) for row in cursor.fetchall()]
