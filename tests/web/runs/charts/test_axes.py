"""Metrics over seconds and over tokens: the same buckets, placed elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from composer_web.runs import metrics
from composer_web.runs.charts import axes
from composer_web.runs.charts.axes import Axis
from composer_web.runs.charts.series import Bucket
from composer_web.runs.models import Metric, Run

pytestmark = pytest.mark.django_db


def of(run: Run, name: str, *, axis: Axis, **limits: Any) -> list[Bucket]:
    return axes.buckets(run, [name], axis=axis, **limits)[name]


@pytest.fixture
def run(draft: Run) -> Run:
    """Steps 1 to 10, one every 20 s, 100 tokens more each step; an evaluation at steps 0 and 6."""
    draft.started_at = timezone.now()
    draft.save(update_fields=["started_at"])
    rows = [
        (step, name, value) for step in range(1, 11) for name, value in (("y", step / 2), (axes.TOKENS, 100.0 * step))
    ]
    metrics.record_many(run=draft, rows=[*rows, (0, "eval/pass1", 0.1), (6, "eval/pass1", 0.4)])
    for row in Metric.objects.filter(run=draft):
        Metric.objects.filter(pk=row.pk).update(at=draft.started_at + timedelta(seconds=20 * row.step))
    return draft


def test_seconds_count_from_the_start(run: Run) -> None:
    found = of(run, "y", axis=Axis.TIME)
    assert [(b.x, b.value) for b in found] == [(20.0 * step, step / 2) for step in range(1, 11)]


def test_tokens_are_summed_up_to_each_step(run: Run) -> None:
    total = {step: 100.0 * step * (step + 1) / 2 for step in range(11)}
    assert [b.x for b in of(run, "y", axis=Axis.TOKENS)] == [total[step] for step in range(1, 11)]
    sparse = of(run, "eval/pass1", axis=Axis.TOKENS)
    assert [(b.x, b.value) for b in sparse] == [(0.0, 0.1), (total[6], 0.4)]
    assert of(run, axes.TOKENS, axis=Axis.TOKENS)[-1].x == total[10]


@pytest.mark.parametrize("axis", list(Axis))
def test_no_point_is_lost_and_every_extreme_is_kept(run: Run, axis: Axis) -> None:
    found = of(run, "y", axis=axis, count=3)
    assert len(found) <= 4
    assert sum(b.count for b in found) == 10
    assert min(b.low for b in found) == 0.5
    assert found[-1].value == max(b.high for b in found) == 5.0
    assert [b.x for b in found] == sorted(b.x for b in found)


@pytest.mark.parametrize(("axis", "first", "last"), [(Axis.STEP, 3, 5), (Axis.TIME, 60, 100), (Axis.TOKENS, 600, 1500)])
def test_zoom_asks_the_server_for_a_part(run: Run, axis: Axis, first: float, last: float) -> None:
    assert [b.last for b in of(run, "y", axis=axis, first=first, last=last)] == [3, 4, 5]
    assert of(run, "y", axis=axis, first=last * 100, last=last * 200) == []


def test_a_run_without_tokens_has_nothing_there(draft: Run) -> None:
    metrics.record(run=draft, step=1, values={"y": 1.0})
    assert of(draft, "y", axis=Axis.TOKENS) == []
    assert [b.x for b in of(draft, "y", axis=Axis.TIME)] == [0.0]
