"""pass@1 of a policy over its versions, for the evaluations of a list."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db.models import Q

from composer_web.evals.models import Evaluation, EvaluationState

POINTS = 32
"""Most points of a curve: the newest."""
SAME = ("policy_id", "suite_id", "release_id", "tasks", "samples", "temperature", "effort", "interrupted")
"""Evaluations that agree in these compare. The number of samples is the K of best of K."""


def sparklines(ids: Collection[int]) -> dict[int, list[float]]:
    """Evaluation → pass@1 of the comparable ones up to its own version, oldest first. Evaluations without a score are left
    out. One query."""
    if not ids:
        return {}
    policies = Evaluation.objects.filter(pk__in=ids).order_by().values("policy")
    rows = (
        Evaluation.objects.filter(policy__in=policies, state=EvaluationState.FINISHED)
        .annotate(interrupted=Q(interruption__isnull=False))
        .order_by("version", "pk")
        .values_list("pk", "results__pass1", *SAME)
    )
    series: dict[tuple[Any, ...], list[float]] = {}
    found: dict[int, list[float]] = {}
    for pk, value, *same in rows:
        if value is None:
            continue
        points = series.setdefault(tuple(same), [])
        points.append(value)
        if pk in ids:
            found[pk] = points[-POINTS:]
    return found
