"""The table of mid-training studies."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables

from composer_web.studies.models import Study
from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, Table


class StudyTable(Table):
    help: ClassVar = {
        "codebase": "Code that the policy is trained on in mid-training.",
        "run_count": "Runs of all its arms.",
        "finished_count": "Runs that did all their steps.",
        "live_count": "Runs that wait, run or pause.",
        "failed_count": "Runs that ended with an error.",
    }
    name = tables.Column(linkify=("studies:detail", {"pk": tables.A("pk")}), attrs=STRONG)
    policy = tables.Column(accessor="wanted__policy", verbose_name="Policy", orderable=False)
    codebase = tables.Column(accessor="wanted__codebase", verbose_name="Codebase", orderable=False, default="–")
    run_count = NumberColumn(verbose_name="Runs")
    finished_count = NumberColumn(verbose_name="Finished")
    live_count = NumberColumn(verbose_name="Live")
    failed_count = NumberColumn(verbose_name="Failed")
    created_by = tables.Column(verbose_name="Created by", default="–")
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "studies/empty.html"

    class Meta:
        model = Study
        fields = (
            "name",
            "policy",
            "codebase",
            "run_count",
            "finished_count",
            "live_count",
            "failed_count",
            "created_by",
            "created_at",
        )
        order_by = ("-created_at",)
