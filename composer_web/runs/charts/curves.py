"""Whole curves of several runs in one query, thinned to what a small chart can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db.models import F, IntegerField, Q, Value
from django.db.models.functions import Cast, Greatest, Mod

from composer_web.runs.models import Metric, Run

POINTS = 160
"""Points of a curve, at most twice as many."""
MAIN = {"rl": "reward/mean", "sft": "loss/train", "midtrain": "loss/train"}
"""Kind of run → the metric of its main curve."""
HELD_OUT = {"rl": "eval/pass1", "sft": "loss/heldout", "midtrain": "loss/heldout"}
"""Kind of run → the metric on tasks or text that it never trains on. It has few points and is not thinned."""

Point = tuple[int, float]
"""Step and value."""


@dataclass
class Curves:
    """The two curves of a run, oldest point first."""

    main: list[Point] = field(default_factory=list)
    held_out: list[Point] = field(default_factory=list)


def curves(runs: Sequence[Run]) -> dict[int, Curves]:
    """By run id. The newest value comes from the run's row, so that a curve ends where the run's tiles say."""
    found = {run.pk: Curves() for run in runs}
    if not found:
        return found
    stride = Greatest(Cast(F("run__step") / Value(POINTS), IntegerField()), 1)
    main, held_out = set(MAIN.values()), set(HELD_OUT.values())
    rows = (
        Metric.objects.filter(run__in=list(found), key__name__in=main | held_out)
        .annotate(rest=Mod(F("step"), stride))
        .filter(Q(key__name__in=held_out) | Q(rest=0))
        .order_by("step")
    )
    kinds = {run.pk: run.kind for run in runs}
    for pk, name, step, value in rows.values_list("run_id", "key__name", "step", "value"):
        if name == MAIN[kinds[pk]]:
            found[pk].main.append((step, value))
        elif name == HELD_OUT[kinds[pk]]:
            found[pk].held_out.append((step, value))
    for run in runs:
        last = run.latest.get(MAIN[run.kind])
        points = found[run.pk].main
        if last is not None and (not points or points[-1][0] < run.step):
            points.append((run.step, last))
    return found
