"""The policies table."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html

from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, Table
from composer_web.ui.templatetags import ui
from composer_web.policies.models import Policy


class PolicyTable(Table):
    help: ClassVar = {
        "parameters": "Number of weights.",
        "parent": "Policy and version that its training started from.",
        "made_by": "Run that trained it, “import”, or the model of an endpoint.",
        "newest_version": "Newest version of the weights. A run publishes one after each step.",
        "checkpoint_count": "Checkpoints whose files are still kept.",
    }
    name = tables.Column(attrs=STRONG, linkify=("policies:detail", {"name": tables.A("name")}))
    parameters = tables.Column(accessor="architecture__parameters", orderable=False, attrs={"td": {"class": "num"}})
    parent = tables.Column(default="–")
    made_by = tables.Column(empty_values=(), orderable=False, verbose_name="Created by")
    newest_version = NumberColumn(verbose_name="Newest version")
    checkpoint_count = NumberColumn(verbose_name="Checkpoints")
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "policies/empty.html"

    class Meta:
        model = Policy
        fields = ("name", "parameters", "parent", "made_by", "newest_version", "checkpoint_count", "created_at")
        order_by = ("-created_at",)

    def render_name(self, value: str, record: Policy) -> str:
        mark = "endpoint" if record.is_endpoint else "toy" if record.toy else ""
        return format_html("{} {}", value, ui.badge(mark, mark) if mark else "")

    def render_parameters(self, value: int) -> str:
        return ui.compact(value)

    def render_parent(self, record: Policy) -> str:
        return f"{record.parent}@{record.parent_version}" if record.parent else "–"

    def render_made_by(self, record: Policy) -> str:
        if record.is_endpoint:
            return record.endpoint.model
        run = getattr(record, "produced_by", None)
        return format_html('<a href="{}">{}</a>', reverse("runs:detail", args=[run.pk]), run.name) if run else "import"
