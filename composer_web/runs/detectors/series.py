"""First and last points of some metrics of all live runs, or of one run, in one query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db.models import F, Q

from composer_web.runs.models import Metric, Run

LIVE = ("running", "pausing", "paused")
FIRST = 8
"""Steps at the beginning of a run that later ones are compared with."""
WINDOW = 60
"""Steps that a detector may look back."""
MIN = 4
"""Fewer points say nothing: one odd step is no trend. A run of fewer steps is judged by all of them."""
RECENT = 8
"""Steps whose mean is judged."""
MAX_RUNS = 50


@dataclass
class RunSeries:
    """A live run and the values of its metrics by step, oldest first. A metric without points is an empty list."""

    run: Run
    values: dict[str, list[float]] = field(default_factory=dict)

    def last(self, metric: str, count: int) -> list[float]:
        return self.values.get(metric, [])[-count:]

    def recent(self, metric: str) -> list[float]:
        """Values of the last steps; empty while there are too few."""
        found = self.last(metric, RECENT)
        return found if len(found) >= max(1, min(MIN, self.run.steps_total or MIN)) else []

    def recent_mean(self, metric: str) -> float | None:
        """Mean over the last steps; None while there are too few."""
        found = self.recent(metric)
        return mean(found) if found else None

    def first_and_last(self, metric: str) -> tuple[float, float] | None:
        """Mean of the run's first steps and of its newest ones; None while they overlap."""
        points = self.values.get(metric, [])
        return (mean(points[:FIRST]), mean(points[-MIN:])) if len(points) >= FIRST + MIN else None


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def live_series(metrics: Iterable[str]) -> list[RunSeries]:
    """Series of the live RL runs, newest run first."""
    rows = Run.objects.filter(state__in=LIVE, kind="rl").order_by("-pk").defer("config", "curve")[:MAX_RUNS]
    return _series(rows, metrics)


def run_series(run: Run, metrics: Iterable[str]) -> list[RunSeries]:
    """Series of one RL run, whatever its state; empty for another kind of run."""
    return _series([run] if run.kind == "rl" else [], metrics)


def _series(rows: Iterable[Run], metrics: Iterable[str]) -> list[RunSeries]:
    found = {run.pk: RunSeries(run) for run in rows}
    if found:
        ends = Q(step__lte=FIRST) | Q(step__gt=F("run__step") - WINDOW)
        points = Metric.objects.filter(ends, step__gt=0, run__in=list(found), key__name__in=list(metrics))
        for run, name, value in points.order_by("step").values_list("run_id", "key__name", "value"):
            found[run].values.setdefault(name, []).append(value)
    return list(found.values())
