"""The table of sweeps."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables

from composer_web.runs.launch.schema_form import headings
from composer_web.runs.models import Sweep
from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, Table
from composer_web.ui.templatetags import ui


class SweepTable(Table):
    help: ClassVar = {
        "mode": "Grid: every combination of the values. List: the first values together, then the second ones.",
        "fields": "Settings with several values, one run for each.",
        "live_count": "Runs that wait, run or pause.",
        "ended_count": "Runs that finished, failed or were cancelled.",
    }
    name = tables.Column(linkify=("runs:sweep", {"pk": tables.A("pk")}), attrs=STRONG)
    mode = tables.Column()
    fields = tables.Column(verbose_name="What varies", orderable=False, attrs={"td": {"class": "long"}})
    run_count = NumberColumn(verbose_name="Runs")
    live_count = NumberColumn(verbose_name="Live")
    ended_count = NumberColumn(verbose_name="Ended")
    created_by = tables.Column(verbose_name="Created by", default="–")
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "runs/sweeps_empty.html"

    class Meta:
        model = Sweep
        fields = ("name", "mode", "fields", "run_count", "live_count", "ended_count", "created_by", "created_at")
        order_by = ("-created_at",)

    def render_fields(self, record: Sweep) -> str:
        names = [head.label for head in headings(list(record.varied))]
        return "; ".join(
            f"{name} {ui.flat(values)}" for name, values in zip(names, record.varied.values(), strict=True)
        )
