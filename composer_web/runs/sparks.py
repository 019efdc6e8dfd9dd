"""The last values of one metric for many runs, in one query: the curve beside each row of the runs table."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection

POINTS = 40


def recent(run_ids: Iterable[int], names: Iterable[str], *, points: int = POINTS) -> dict[int, list[float]]:
    """At most `points` values a run, oldest first. A run that has several of `names` shows the first it has."""
    ids, wanted = list(run_ids), list(names)
    if not ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT r.id, k.name, p.step, p.value
            FROM unnest(%(runs)s::bigint[]) AS r(id)
            CROSS JOIN runs_metrickey k
            CROSS JOIN LATERAL (
                SELECT m.step, m.value FROM runs_metric m
                WHERE m.run_id = r.id AND m.key_id = k.id ORDER BY m.step DESC LIMIT %(points)s
            ) p
            WHERE k.name = ANY(%(names)s)
            ORDER BY r.id, k.name, p.step
            """,
            {"runs": ids, "names": wanted, "points": points},
        )
        found: dict[int, dict[str, list[float]]] = {}
        for run, name, _step, value in cursor.fetchall():
            found.setdefault(run, {}).setdefault(name, []).append(value)
    return {run: next(series[name] for name in wanted if name in series) for run, series in found.items()}
