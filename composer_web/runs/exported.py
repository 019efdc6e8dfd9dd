"""Export of runs and their metrics as files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import django_filters as filters
from django.db.models import Q, QuerySet

from composer_web.core.numbers import COUNT
from composer_web.rollouts.exported import Table
from composer_web.runs.filters import RunFilter
from composer_web.runs.models import Metric, MetricKey, Run
from composer_web.ui.table_writers import Column, Columns, Row


class MetricFilter(filters.FilterSet):
    """`run` and `name` may be repeated. Without `run`, the export is empty: the table of all runs is unbounded."""

    run = filters.ModelMultipleChoiceFilter(queryset=lambda _: Run.objects.only("pk"), label="Run", required=True)
    name = filters.ModelMultipleChoiceFilter(
        field_name="key__name", to_field_name="name", queryset=lambda _: MetricKey.objects.all(), label="Metric"
    )
    first = filters.NumberFilter(
        field_name="step", lookup_expr="gte", label="First step", min_value=0, max_value=10**COUNT
    )
    last = filters.NumberFilter(
        field_name="step", lookup_expr="lte", label="Last step", min_value=0, max_value=10**COUNT
    )

    class Meta:
        model = Metric
        fields = ["run", "name", "first", "last"]


def by_name_and_step(rows: QuerySet[Any], columns: Columns, size: int, _: int | None) -> Iterator[list[Row]]:
    """Rows by run, then by metric, in the order of the table's primary key."""
    wanted = [*(column.source for column in columns.values()), "key_id"]
    after: dict[str, Any] | None = None
    while True:
        page = rows
        if after is not None:
            run, key, step = after["run_id"], after["key_id"], after["step"]
            page = rows.filter(
                Q(run_id__gt=run) | Q(run_id=run, key_id__gt=key) | Q(run_id=run, key_id=key, step__gt=step)
            )
        found = list(page.order_by("run_id", "key_id", "step").values(*wanted)[:size])
        if not found:
            return
        yield [{name: row[column.source] for name, column in columns.items()} for row in found]
        after = found[-1]


METRICS = Table(
    noun="Metrics",
    filter=MetricFilter,
    rows=Metric.objects.all,
    page="runs:list",
    linked=False,
    pages=by_name_and_step,
    columns={
        "run": Column("run_id", "integer"),
        "name": Column("key__name"),
        "step": Column("step", "integer"),
        "value": Column("value", "number"),
        "at": Column("at", "time"),
    },
)

RUNS = Table(
    noun="Runs",
    filter=RunFilter,
    rows=Run.objects.all,
    page="runs:list",
    kept=("sort", "cols"),
    columns={
        "run": Column("id", "integer"),
        "name": Column("name"),
        "stage": Column("kind"),
        "state": Column("state"),
        "step": Column("step", "integer"),
        "steps_total": Column("steps_total", "integer"),
        "policy_version": Column("policy_version", "integer"),
        "policy_in": Column("policy_in__name"),
        "policy_in_version": Column("policy_in_version", "integer"),
        "policy_out": Column("policy_out__name"),
        "parent": Column("parent_id", "integer"),
        "sweep": Column("sweep_id", "integer"),
        "seed": Column("seed", "integer"),
        "tags": Column("tags", "data"),
        "notes": Column("notes"),
        "latest": Column("latest", "data"),
        "failure": Column("failure"),
        "recoveries": Column("recoveries", "integer"),
        "code_version": Column("code_version"),
        "created_by": Column("created_by__username"),
        "created_at": Column("created_at", "time"),
        "started_at": Column("started_at", "time"),
        "finished_at": Column("finished_at", "time"),
        "archived_at": Column("archived_at", "time"),
    },
)
