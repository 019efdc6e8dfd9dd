"""The runs table."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html
from django.utils.safestring import mark_safe

from composer_web.ops.tables import STRONG, AgoColumn, StateColumn, Table, TickColumn
from composer_web.ops.templatetags import ui
from composer_web.runs.models import Run
from composer_web.runs.selectors import eta_seconds

DONE = mark_safe(' class="done"')


class RunTable(Table):
    """`sparks` maps run id → the last values of its headline metric."""

    select = TickColumn("run")
    name = tables.Column(linkify=("runs:detail", {"pk": tables.A("pk")}), attrs=STRONG)
    state = StateColumn()
    kind = tables.Column(verbose_name="Stage")
    progress = tables.Column(empty_values=(), orderable=False)
    curve = tables.Column(empty_values=(), orderable=False, verbose_name="Reward or loss")
    pass1 = tables.Column(
        empty_values=(), orderable=False, verbose_name="Held-out pass@1", attrs={"td": {"class": "num"}}
    )
    policy_in = tables.Column(verbose_name="From", linkify=("policies:detail", {"name": tables.A("policy_in__name")}))
    created_by = tables.Column(verbose_name="By", default="–")
    created_at = AgoColumn(verbose_name="Made")

    empty_template = "runs/empty.html"

    class Meta:
        model = Run
        fields = (
            "select",
            "name",
            "state",
            "kind",
            "progress",
            "curve",
            "pass1",
            "policy_in",
            "created_by",
            "created_at",
        )
        order_by = ("-created_at",)

    def __init__(self, *args: Any, sparks: dict[int, list[float]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sparks = sparks or {}

    def render_kind(self, record: Run) -> str:
        return record.get_kind_display()

    def render_progress(self, record: Run) -> str:
        eta = eta_seconds(record)
        took = ui.since(record.started_at, record.finished_at) if record.started_at else ""
        note = f"about {ui.seconds(eta)} left" if eta else took
        return format_html(
            '<span class="meter"><progress max="{}" value="{}"{}></progress>'
            '<span class="between"><span>{} / {}</span><span>{}</span></span></span>',
            record.steps_total,
            record.step,
            DONE if record.state == "finished" else "",
            record.step,
            record.steps_total,
            note,
        )

    def render_curve(self, record: Run) -> str:
        values = self.sparks.get(record.pk, [])
        last = ui.num(values[-1]) if values else ""
        label = "reward" if record.kind == "rl" else "loss"
        return format_html(
            '<span class="row nowrap">{} <span class="num">{}</span></span>', ui.spark(list(values), label), last
        )

    def render_pass1(self, record: Run) -> str:
        return ui.percent(record.latest.get("eval/pass1"))
