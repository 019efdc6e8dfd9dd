"""Metrics: COPY in, buckets out."""

from __future__ import annotations

import math

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from composer_web.runs import metrics
from composer_web.runs.charts import series
from composer_web.runs.charts.series import Bucket
from composer_web.runs.models import Metric, Run

pytestmark = pytest.mark.django_db


def of(run: Run, name: str, *, count: int = 500, first: int | None = None, last: int | None = None) -> list[Bucket]:
    return series.buckets(run, [name], count=count, first=first, last=last)[name]


def test_a_repeated_step_replaces_its_numbers(draft: Run) -> None:
    metrics.record(run=draft, step=1, values={"loss": 2.0, "reward/mean": 0.1})
    metrics.record(run=draft, step=2, values={"loss": 1.5})
    metrics.record(run=draft, step=2, values={"loss": 1.25})
    assert [(b.first, b.value) for b in of(draft, "loss")] == [(1, 2.0), (2, 1.25)]
    assert metrics.names(draft) == ["loss", "reward/mean"]
    draft.refresh_from_db()
    assert draft.latest == {"loss": 1.25, "reward/mean": 0.1}


def test_values_that_are_not_finite_are_left_out(draft: Run) -> None:
    assert metrics.record(run=draft, step=1, values={"a": math.nan, "b": math.inf, "c": 1.0}) == 1
    assert Metric.objects.get(run=draft).value == 1.0


def test_nothing_recorded_is_nothing_shown(draft: Run) -> None:
    assert metrics.names(draft) == []
    assert of(draft, "loss") == []


@given(
    points=st.dictionaries(st.integers(0, 3000), st.floats(-1e6, 1e6), min_size=1, max_size=60),
    count=st.integers(1, 40),
    zoom=st.tuples(st.integers(0, 3000), st.integers(0, 3000)),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_buckets_keep_extremes_and_the_last_value(
    draft: Run, points: dict[int, float], count: int, zoom: tuple[int, int]
) -> None:
    Metric.objects.filter(run=draft).delete()
    metrics.record_many(run=draft, rows=[(step, "x", value) for step, value in points.items()])
    first, last = min(zoom), max(zoom)
    shown = {step: value for step, value in points.items() if first <= step <= last}
    found = of(draft, "x", count=count, first=first, last=last)
    assert len(found) <= count
    assert sum(b.count for b in found) == len(shown)
    assert [b.first for b in found] == sorted(b.first for b in found)
    for bucket in found:
        inside = {s: v for s, v in shown.items() if bucket.first <= s <= bucket.last}
        assert (bucket.low, bucket.high) == (min(inside.values()), max(inside.values()))
        assert bucket.value == inside[bucket.last]


def test_ten_thousand_rows_in_one_copy(draft: Run) -> None:
    rows = [(step, f"m{key}", step * 0.5) for step in range(1000) for key in range(10)]
    assert metrics.record_many(run=draft, rows=rows) == 10_000
    assert Metric.objects.filter(run=draft).count() == 10_000
    assert len(of(draft, "m3", count=100)) == 63  # 16 wide: a power of two


def test_metrics_have_owners(draft: Run) -> None:
    metrics.record(run=draft, step=1, values={"loss": 1.0})
    key = Metric.objects.get(run=draft).key_id
    add = "INSERT INTO runs_metric (run_id, key_id, step, value, at) VALUES (%s, %s, 9, 1.0, now())"
    for statement, values, said in (
        (add, (draft.pk + 1000, key), "which does not exist"),
        (add, (draft.pk, key + 1000), "which does not exist"),
        ("DELETE FROM runs_metrickey WHERE id = %s", (key,), "has metrics"),
        ("DELETE FROM runs_run WHERE id = %s", (draft.pk,), "has metrics"),
    ):
        with pytest.raises(IntegrityError, match=said), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, values)
    assert Metric.objects.count() == 1
