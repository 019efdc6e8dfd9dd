"""The rollouts table."""

from __future__ import annotations

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html

from composer_web.ops.tables import STRONG, AgoColumn, NumberColumn, StateColumn, Table
from composer_web.ops.templatetags import ui
from composer_web.rollouts.models import Rollout


class RolloutTable(Table):
    id = tables.Column(verbose_name="Rollout", linkify=("rollouts:detail", {"pk": tables.A("pk")}), attrs=STRONG)
    task = tables.Column(accessor="group__task_version__task__slug", verbose_name="Task")
    owner = tables.Column(empty_values=(), orderable=False, verbose_name="Run or evaluation")
    verdict = StateColumn(empty_values=())
    reward = NumberColumn()
    stop_reason = tables.Column(verbose_name="Stop reason", default="–")
    turns = NumberColumn()
    tool_errors = NumberColumn(verbose_name="Tool errors")
    policy_tokens = NumberColumn(verbose_name="Policy tokens")
    oldest_version = NumberColumn(verbose_name="Version")
    finished_at = AgoColumn(verbose_name="Ended")

    empty_template = "rollouts/empty.html"

    class Meta:
        model = Rollout
        fields = (
            "id",
            "task",
            "owner",
            "verdict",
            "reward",
            "stop_reason",
            "turns",
            "tool_errors",
            "policy_tokens",
            "oldest_version",
            "finished_at",
        )
        order_by = ("-id",)

    def render_id(self, value: int) -> str:
        return f"#{value}"

    def render_task(self, value: str) -> str:
        return format_html('<span class="clip" title="{}">{}</span>', value, value)

    def render_owner(self, record: Rollout) -> str:
        group = record.group
        if group.run is not None:
            return format_html('<a href="{}">{}</a>', reverse("runs:detail", args=[group.run_id]), group.run.name)
        return format_html(
            '<a href="{}">evaluation {}</a>', reverse("evals:detail", args=[group.evaluation_id]), group.evaluation_id
        )

    def render_verdict(self, record: Rollout) -> str:
        return ui.badge(record.verdict or record.state)

    def render_stop_reason(self, value: str) -> str:
        return ui.words(value)
