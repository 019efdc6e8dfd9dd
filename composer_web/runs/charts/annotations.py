"""Chart annotations of a run: checkpoints, weight syncs, evaluations, alerts, recoveries."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from django.db import connection

from composer_web.runs.charts.axes import TOKENS, Axis
from composer_web.runs.models import Run

MAX = 200
"""Maximum number of annotations of one kind on a chart. Beyond it, the newest are shown and the rest are counted."""


@dataclass(frozen=True)
class Mark:
    x: float
    """Step, seconds since the start, or trained tokens."""
    step: int
    kind: str
    text: str


@dataclass(frozen=True)
class Marks:
    marks: list[Mark]
    left_out: int


# (kind, step, at, words) of everything that is worth a mark. Warnings of any kind are alerts, as is what a rule
# raised, where it began; a weight sync lies where its version was first seen at the engine.
_HAPPENED = """
    SELECT CASE WHEN kind IN ('checkpoint', 'recovery', 'sync') THEN kind ELSE 'alert' END AS kind, step, at,
           left(message, 200) AS words
    FROM runs_runevent
    WHERE run_id = %(run)s AND step IS NOT NULL AND (kind IN ('checkpoint', 'recovery', 'sync') OR level <> 'info')
    UNION ALL
    SELECT 'eval', e.version, coalesce(e.finished_at, e.created_at),
           'evaluation of version ' || e.version || coalesce(', pass@1 ' || round((e.results->>'pass1')::numeric, 3), '')
    FROM evals_evaluation e WHERE e.run_id = %(run)s
    UNION ALL
    SELECT 'alert', a.step, a.opened_at, left(rule.name || ': ' || a.message, 200)
    FROM alerts_alert a JOIN alerts_rule rule ON rule.id = a.rule_id WHERE a.about = %(about)s AND a.step IS NOT NULL
    UNION ALL
    SELECT 'sync', min(m.step), min(m.at), 'engine serves version ' || m.value::bigint
    FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id
    WHERE m.run_id = %(run)s AND k.name = 'sync/version' GROUP BY m.value
"""

_TOKENS = """
    SELECT m.step, sum(m.value) OVER (ORDER BY m.step) FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id
    WHERE m.run_id = %(run)s AND k.name = %(tokens)s ORDER BY m.step
"""


def of_run(run: Run, axis: Axis) -> Marks:
    """Annotations in axis order: the newest MAX of each kind. `left_out` counts the others."""
    names: dict[str, int | str] = {"run": run.pk, "about": f"run:{run.pk}", "tokens": TOKENS, "most": MAX}
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH happened AS ({_HAPPENED}),
            counted AS (SELECT *, row_number() OVER (PARTITION BY kind ORDER BY step DESC, at DESC) AS place FROM happened)
            SELECT h.step, extract(epoch FROM h.at - coalesce(r.started_at, r.created_at))::double precision, h.kind, h.words,
                   (SELECT count(*) FROM counted WHERE place > %(most)s)
            FROM counted h JOIN runs_run r ON r.id = %(run)s WHERE place <= %(most)s ORDER BY h.step, h.at, h.kind
            """,  # noqa: S608 (a constant)
            names,
        )
        rows = cursor.fetchall()
        tokens: list[tuple[int, float]] = []
        if axis == Axis.TOKENS and rows:
            cursor.execute(_TOKENS, names)
            tokens = cursor.fetchall()
    steps = [step for step, _ in tokens]

    def place(step: int, seconds: float) -> float:
        if axis == Axis.STEP:
            return float(step)
        if axis == Axis.TIME:
            return max(0.0, seconds)
        before = bisect_right(steps, step)
        return tokens[before - 1][1] if before else 0.0

    found = [Mark(place(step, seconds), step, kind, words) for step, seconds, kind, words, _ in rows]
    return Marks(sorted(found, key=lambda mark: mark.x), rows[0][4] if rows else 0)
