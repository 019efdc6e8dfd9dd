"""Small curves of any metric for tables of runs."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Avg, F

from composer_web.runs.models import Metric, MetricKey

POINTS = 32
"""Most points of a curve: each is the mean of a part of the run's steps."""


def sparklines(run_ids: Collection[int], names: Collection[str]) -> dict[tuple[int, str], list[float]]:
    """(run, metric) → its curve, without those that have no points. Two queries, however many runs."""
    if not run_ids or not names:
        return {}
    keys = dict(MetricKey.objects.filter(name__in=names).values_list("pk", "name"))
    rows = (
        Metric.objects.filter(run_id__in=run_ids, key_id__in=keys)
        .annotate(part=F("step") * POINTS / (F("run__step") + 1))
        .values_list("run_id", "key_id", "part")
        .annotate(mean=Avg("value"))
        .order_by("run_id", "key_id", "part")
    )
    found: dict[tuple[int, str], list[float]] = {}
    for run_id, key_id, _, mean in rows:
        found.setdefault((run_id, keys[key_id]), []).append(mean)
    return found
