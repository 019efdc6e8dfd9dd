"""The table of reports."""

from __future__ import annotations

import django_tables2 as tables

from composer_web.runs.models import Report
from composer_web.ui.tables import STRONG, AgoColumn, Table


class ReportTable(Table):
    title = tables.Column(linkify=("runs:report", {"pk": tables.A("pk")}), attrs=STRONG)
    description = tables.Column(default="", orderable=False, attrs={"td": {"class": "long"}})
    author = tables.Column(verbose_name="Author", default="system")
    updated_at = AgoColumn(verbose_name="Changed")

    empty_template = "reports/empty.html"

    class Meta:
        model = Report
        fields = ("title", "description", "author", "updated_at")
        order_by = ("-updated_at",)
