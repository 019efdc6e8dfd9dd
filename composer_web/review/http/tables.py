"""Tables of review queues, annotations and drafts."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html

from composer_web.review.models import Annotation, Draft, Queue
from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, StateColumn, Table
from composer_web.ui.templatetags import ui


class QueueTable(Table):
    help: ClassVar = {
        "rollouts": "Rollouts in the queue.",
        "reviewers": "People who have to label each rollout, blind to each other.",
    }
    name = tables.Column(linkify=("review:queue", {"name": tables.A("name")}), attrs=STRONG)
    title = tables.Column(orderable=False)
    rollouts = NumberColumn()
    finished = NumberColumn(verbose_name="Reviewed")
    labels = NumberColumn()
    reviewers = NumberColumn(verbose_name="Reviewers per rollout")
    state = StateColumn("queue", empty_values=(), orderable=False)
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "review/empty.html"

    class Meta:
        model = Queue
        fields = ("name", "title", "rollouts", "finished", "labels", "reviewers", "state", "created_at")

    def render_title(self, value: str) -> str:
        return format_html('<span class="clip" title="{}">{}</span>', value, value)

    def render_state(self, record: Queue) -> str:
        return ui.badge("closed" if record.closed_at else "ready", "closed" if record.closed_at else "open")


class DraftTable(Table):
    help: ClassVar = {"turn": "Turn of the rollout whose files the task begins with."}
    slug = tables.Column(verbose_name="Draft", linkify=("review:draft", {"pk": tables.A("pk")}), attrs=STRONG)
    state = StateColumn("draft")
    category = tables.Column()
    rollout_id = tables.Column(
        verbose_name="From rollout", linkify=("rollouts:detail", {"pk": tables.A("rollout_id")}), orderable=False
    )
    turn = NumberColumn()
    created_by = tables.Column(verbose_name="Created by", default="–", orderable=False)
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "review/drafts_empty.html"

    class Meta:
        model = Draft
        fields = ("slug", "state", "category", "rollout_id", "turn", "created_by", "created_at")


class AnnotationTable(Table):
    help: ClassVar = {"kind": "Verdict, tag, comment, assignee, or a request for review."}
    rollout_id = tables.Column(verbose_name="Rollout", orderable=False, attrs=STRONG)
    kind = tables.Column()
    value = tables.Column(empty_values=(), orderable=False, verbose_name="Annotation")
    task = tables.Column(accessor="rollout__group__task_version__task__slug", orderable=False)
    author = tables.Column(accessor="author__username", orderable=False)
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "review/annotations_empty.html"

    class Meta:
        model = Annotation
        fields = ("rollout_id", "kind", "value", "task", "author", "created_at")
        order_by = ("-id",)

    def render_rollout_id(self, record: Annotation) -> str:
        place = f"#t={record.turn}" if record.turn is not None else ""
        address = reverse("rollouts:detail", args=[record.rollout_id])
        return format_html('<a href="{}{}">#{}</a>', address, place, record.rollout_id)

    def render_kind(self, record: Annotation) -> str:
        return record.get_kind_display()

    def render_value(self, record: Annotation) -> str:
        if record.kind == "verdict":
            return ui.badge({"good": "passed", "bad": "failed"}.get(record.value, "late"), record.value)
        if record.kind == "comment":
            place = f"turn {record.turn + 1}: " if record.turn is not None else ""
            return format_html('<span class="clip" title="{}">{}{}</span>', record.text, place, record.text[:160])
        return record.assignee.username if record.assignee else record.value or "–"
