"""Tables of rollouts and findings."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode

from composer_web.rollouts.finding_rules import RULE_TITLES
from composer_web.rollouts.models import FINDING_LEGAL, Finding, Rollout
from composer_web.rollouts.search.fulltext import first_words
from composer_web.ui.tables import STRONG, AgoColumn, ChosenTable, NumberColumn, StateColumn, TickColumn
from composer_web.ui.templatetags import ui


def _address(record: Rollout, table: RolloutTable) -> str:
    """URL of the trajectory. Carries over the list's full-text search."""
    address = reverse("rollouts:detail", args=[record.pk])
    words = first_words(table.request.GET.get("text", "")) if hasattr(table, "request") else ""
    return f"{address}?{urlencode({'q': words})}" if words else address


class RolloutTable(ChosenTable):
    always = ("select", "id", "match")
    unusual = frozenset({"tool_calls", "input_tokens", "cached_tokens", "created_at"})
    help: ClassVar = {
        "owner": "The run or evaluation that asked for the rollout, or the rollout that it was forked from.",
        "match": "The words of the search, where the trajectory has them first.",
        "oldest_version": "Version of the weights that sampled the first token.",
        "finished_at": "",
        "tool_calls": "Calls of tools that the policy asked for, those that failed included.",
        "input_tokens": "Tokens that the policy read, over all turns.",
        "cached_tokens": "Of the input tokens, those whose keys and values the engine still had.",
        "created_at": "When the rollout was handed to a worker.",
    }
    select = TickColumn("rollout")
    id = tables.Column(verbose_name="Rollout", linkify=_address, attrs=STRONG)
    task = tables.Column(accessor="group__task_version__task__slug", verbose_name="Task")
    owner = tables.Column(empty_values=(), orderable=False, verbose_name="Part of")
    match = tables.Column(accessor="pk", orderable=False, verbose_name="Match")
    verdict = StateColumn("verdict rollout", empty_values=())
    reward = NumberColumn()
    stop_reason = tables.Column(verbose_name="Stop reason", default="–")
    turns = NumberColumn()
    tool_calls = NumberColumn(verbose_name="Tool calls")
    tool_errors = NumberColumn(verbose_name="Tool errors")
    input_tokens = NumberColumn(verbose_name="Input tokens")
    cached_tokens = NumberColumn(verbose_name="Cached tokens")
    output_tokens = NumberColumn(verbose_name="Output tokens")
    oldest_version = NumberColumn(verbose_name="Version")
    created_at = AgoColumn(verbose_name="Dispatched")
    finished_at = AgoColumn(verbose_name="Ended")

    empty_template = "rollouts/empty.html"

    class Meta:
        model = Rollout
        fields = (
            "select",
            "id",
            "task",
            "owner",
            "match",
            "verdict",
            "reward",
            "stop_reason",
            "turns",
            "tool_calls",
            "tool_errors",
            "input_tokens",
            "cached_tokens",
            "output_tokens",
            "oldest_version",
            "created_at",
            "finished_at",
        )
        order_by = ("-id",)

    def render_id(self, value: int) -> str:
        return f"#{value}"

    def render_task(self, value: str) -> str:
        return format_html('<span class="clip" title="{}">{}</span>', value, value)

    def render_match(self, value: int) -> str:
        """Filled when the page has fetched its snippets."""
        return format_html('<span id="match-{}" class="snippet">…</span>', value)

    def render_owner(self, record: Rollout) -> str:
        group = record.group
        if group.run is not None:
            return format_html('<a href="{}">{}</a>', reverse("runs:detail", args=[group.run_id]), group.run.name)
        if group.fork is not None:
            parent = group.fork.parent_id
            return format_html('<a href="{}">fork of #{}</a>', reverse("rollouts:detail", args=[parent]), parent)
        return format_html(
            '<a href="{}">evaluation {}</a>', reverse("evals:detail", args=[group.evaluation_id]), group.evaluation_id
        )

    def render_verdict(self, record: Rollout) -> str:
        return ui.badge(record.verdict or record.state)

    def render_stop_reason(self, value: str) -> str:
        return ui.words(value)


def decisions(finding: Finding) -> list[str]:
    """Decisions that the state of a finding allows."""
    return [to for was, to in FINDING_LEGAL if was == finding.state]


class FindingTable(ChosenTable):
    always = ("select", "id")
    help: ClassVar = {
        "rule": "Rule of the auditor or monitor that found it. Its page says what the rule looks at.",
        "about": "The rollout that it is about, or what else was looked at.",
    }
    select = TickColumn("finding", allows=decisions, called=lambda finding: f"finding {finding.pk}")
    id = tables.Column(verbose_name="Finding", linkify=("rollouts:finding", {"pk": tables.A("pk")}), attrs=STRONG)
    severity = StateColumn("severity")
    rule = tables.Column()
    summary = tables.Column(orderable=False, verbose_name="What was found")
    about = tables.Column(empty_values=(), orderable=False)
    task = tables.Column(accessor="slug", verbose_name="Task", default="–")
    run = tables.Column(accessor="run__name", verbose_name="Run", default="–")
    state = StateColumn("finding")
    created_at = AgoColumn(verbose_name="Found")

    empty_template = "rollouts/findings_empty.html"

    class Meta:
        model = Finding
        fields = ("select", "id", "severity", "rule", "summary", "about", "task", "run", "state", "created_at")
        order_by = ("-id",)

    def render_id(self, value: int) -> str:
        return f"#{value}"

    def render_rule(self, value: str) -> str:
        return format_html('<span title="{}">{}</span>', RULE_TITLES.get(value, value), value)

    def render_summary(self, value: str) -> str:
        return format_html('<span class="clip" title="{}">{}</span>', value, value[:160])

    def render_task(self, value: str) -> str:
        return format_html('<span class="clip" title="{}">{}</span>', value, value)

    def render_about(self, record: Finding) -> str:
        where = ui.badge("quarantined", "in quarantine") if getattr(record, "quarantined", False) else ""
        if record.rollout_id is None:
            return format_html("{}", record.subject)
        address = reverse("rollouts:detail", args=[record.rollout_id])
        return format_html(
            '<span class="row"><a href="{}{}">rollout {}</a> {}</span>',
            address,
            place_of(record),
            record.rollout_id,
            where,
        )


def place_of(finding: Finding) -> str:
    """Fragment of the trajectory page at the first evidence: a turn, or the patch."""
    for item in finding.evidence:
        if item.get("turn") is not None:
            return f"#t={item['turn']}"
    return "#patch" if any(item.get("source") == "patch" for item in finding.evidence) else ""
