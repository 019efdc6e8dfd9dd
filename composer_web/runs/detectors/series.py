"""Last points of some metrics of all live runs, in one query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db.models import F

from composer_web.runs.models import Metric, Run

LIVE = ("running", "pausing", "paused")
WINDOW = 60
"""Steps that a detector may look back."""
MAX_RUNS = 50


@dataclass
class RunSeries:
    """A live run and the values of its metrics by step, oldest first. A metric without points is an empty list."""

    run: Run
    values: dict[str, list[float]] = field(default_factory=dict)

    def last(self, metric: str, count: int) -> list[float]:
        return self.values.get(metric, [])[-count:]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def live_series(metrics: Iterable[str], *, kinds: Sequence[str] = ("rl",)) -> list[RunSeries]:
    """Series of the live runs of these kinds, newest run first."""
    rows = Run.objects.filter(state__in=LIVE, kind__in=kinds).order_by("-pk").defer("config", "curve")[:MAX_RUNS]
    found = {run.pk: RunSeries(run) for run in rows}
    if found:
        points = Metric.objects.filter(
            run__in=list(found), key__name__in=list(metrics), step__gt=F("run__step") - WINDOW
        )
        for run, name, value in points.order_by("step").values_list("run_id", "key__name", "value"):
            found[run].values.setdefault(name, []).append(value)
    return list(found.values())
