"""The evaluations table."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html

from composer_web.evals.models import Evaluation, EvaluationState, Release
from composer_web.evals.results.sparklines import sparklines
from composer_web.ui.tables import STRONG, AgoColumn, ChosenTable, NumberColumn, StateColumn, Table, TickColumn
from composer_web.ui.templatetags import ui
from composer_web.ui.texts import glossary

NUM = {"td": {"class": "num"}}


def possible(evaluation: Evaluation) -> list[str]:
    """Actions that the state of an evaluation allows."""
    if evaluation.open:
        return ["stop"]
    return ["grade"] if evaluation.state == EvaluationState.FINISHED else []


class EvaluationTable(ChosenTable):
    always = ("select", "id")
    unusual = frozenset({"history", "duration", "requested_by"})
    help: ClassVar = {
        "version": "Version of the policy's weights that is evaluated.",
        "phase": "Evaluations of a run: Baseline before training, During training, Final after it. Others stand on their own.",
        "pass1": glossary.meaning("pass@1") + " Beside it: its 95 % interval.",
        "history": "Scores (pass@1) of the policy's versions up to this one, oldest first, with its last value. Tasks, samples, "
        "temperature and effort are the same for all points.",
        "best": glossary.meaning("best of k"),
        "size": "Tasks of the suite that were sampled, and rollouts of each.",
    }
    select = TickColumn("evaluation", allows=possible, called=lambda evaluation: f"evaluation {evaluation.pk}")
    id = tables.Column(verbose_name="Evaluation", linkify=("evals:detail", {"pk": tables.A("pk")}), attrs=STRONG)
    run = tables.Column(linkify=("runs:detail", {"pk": tables.A("run_id")}), default="–")
    policy = tables.Column(linkify=("policies:detail", {"name": tables.A("policy__name")}))
    version = NumberColumn()
    suite = tables.Column(linkify=("tasks:suite", {"name": tables.A("suite__name")}))
    phase = tables.Column()
    state = StateColumn("evaluation")
    pass1 = tables.Column(empty_values=(), orderable=False, verbose_name="pass@1", attrs=NUM)
    history = tables.Column(empty_values=(), orderable=False, verbose_name="pass@1 by version")
    best = tables.Column(empty_values=(), orderable=False, verbose_name="Best of K", attrs=NUM)
    size = tables.Column(empty_values=(), orderable=False, verbose_name="Tasks × samples", attrs=NUM)
    duration = tables.Column(empty_values=(), orderable=False, verbose_name="Duration", attrs=NUM)
    requested_by = tables.Column(accessor="created_by", default="–", verbose_name="By")
    created_at = AgoColumn(verbose_name="Requested")

    empty_template = "evals/empty.html"

    class Meta:
        model = Evaluation
        fields = (
            "select",
            "id",
            "run",
            "policy",
            "version",
            "suite",
            "phase",
            "state",
            "pass1",
            "history",
            "best",
            "size",
            "duration",
            "requested_by",
            "created_at",
        )
        order_by = ("-id",)

    def render_id(self, value: int) -> str:
        return f"#{value}"

    def render_pass1(self, record: Evaluation) -> str:
        low, high = record.results.get("pass1_low"), record.results.get("pass1_high")
        spread = "" if low is None else f"{ui.percent(low, 0)}–{ui.percent(high, 0)}"
        return format_html('{} <span class="faint">{}</span>', ui.percent(record.results.get("pass1")), spread)

    @cached_property
    def sparklines(self) -> dict[int, list[float]]:
        """Curves of this page's evaluations."""
        return sparklines([row.record.pk for row in self.paginated_rows])

    def render_history(self, record: Evaluation) -> str:
        points: list[Any] = self.sparklines.get(record.pk, [])
        last = ui.percent(points[-1]) if points else "–"
        return format_html(
            '<span class="row nowrap">{} <span class="num">{}</span></span>', ui.spark(points, "pass@1"), last
        )

    def render_best(self, record: Evaluation) -> str:
        best = ui.percent(record.results.get("best"))
        return f"{best} of {record.samples}" if record.results.get("best") is not None else best

    def render_duration(self, record: Evaluation) -> str:
        return ui.elapsed(record.started_at, record.finished_at)

    def render_size(self, record: Evaluation) -> str:
        return f"{record.tasks} × {record.samples}"


class ReleaseTable(Table):
    help: ClassVar = {
        "size": "",
        "evaluation_count": "Evaluations on exactly these tasks: they are what the leaderboard compares.",
        "suite": "Suite that it was published from.",
        "digest": "Hash of its task versions. Equal digests: equal tasks.",
    }
    name = tables.Column(accessor="benchmark", verbose_name="Release", attrs=STRONG)
    size = NumberColumn(accessor="statistics__tasks", orderable=False, verbose_name="Tasks")
    lines = NumberColumn(accessor="statistics__lines", orderable=False, verbose_name="Lines changed")
    prompt = NumberColumn(accessor="statistics__prompt_characters", orderable=False, verbose_name="Prompt characters")
    evaluation_count = NumberColumn(verbose_name="Evaluations")
    suite = tables.Column(linkify=("tasks:suite", {"name": tables.A("suite__name")}))
    digest = tables.Column(orderable=False)
    created_at = AgoColumn(verbose_name="Published")

    empty_template = "evals/releases_empty.html"

    class Meta:
        model = Release
        fields = ("name", "size", "lines", "prompt", "evaluation_count", "suite", "digest", "created_at")

    def render_name(self, record: Release) -> str:
        address = reverse("evals:release", args=[record.benchmark, record.number])
        return format_html('<a href="{}">{}</a>', address, record)

    def render_digest(self, value: str) -> str:
        return format_html('<span class="mono" title="{}">{}</span>', value, value[:12])
