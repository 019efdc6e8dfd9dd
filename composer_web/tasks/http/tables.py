"""Tables of tasks and suites."""

from __future__ import annotations

from urllib.parse import quote

import django_tables2 as tables
from django.utils.html import format_html, format_html_join

from composer_web.tasks.models import GeneratorRun, ImportedTrajectory, Suite, Task
from composer_web.ui.tables import NUMBER, STRONG, AgoColumn, ChosenTable, NumberColumn, Table, TickColumn
from composer_web.ui.templatetags import ui


class ControlsColumn(tables.Column):
    """None: not run; True: the oracle passes and doing nothing fails; False: rejected."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, empty_values=(), verbose_name="Validation", **kwargs)

    def render(self, value: bool | None) -> str:
        return {None: ui.badge("not run"), True: ui.badge("passed"), False: ui.badge("failed", "rejected")}[value]


class ShareColumn(tables.Column):
    """A share of 1, in percent."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, default="–", attrs=NUMBER, **kwargs)

    def render(self, value: float) -> str:
        return ui.percent(value, 0)


NAME = {"td": {"class": "strong name"}}
LONG = {"td": {"class": "long"}}
"""Cells with paths and names of functions: they may break anywhere, so that they widen no page."""


class TaskTable(ChosenTable):
    always = ("select", "slug")
    unusual = frozenset({"family"})
    select = TickColumn("task")
    slug = tables.Column(verbose_name="Task", linkify=("tasks:detail", {"slug": tables.A("slug")}), attrs=NAME)
    family = tables.Column()
    newest_number = NumberColumn(verbose_name="Version")
    controls_ok = ControlsColumn()
    test_strength = ShareColumn(verbose_name="Test strength")
    pass_rate = ShareColumn(verbose_name="Pass rate")
    review = tables.Column()
    split = tables.Column(verbose_name="Split", default="–")
    tags = tables.Column(orderable=False, default="–")
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "tasks/empty.html"

    class Meta:
        model = Task
        fields = (
            "select",
            "slug",
            "source",
            "category",
            "family",
            "newest_number",
            "controls_ok",
            "test_strength",
            "pass_rate",
            "review",
            "split",
            "tags",
            "created_at",
        )

    def render_family(self, value: str) -> str:
        return format_html('<span class="clip clip--short" title="{}">{}</span>', value, value)

    def render_review(self, record: Task) -> str:
        return ui.badge(record.review, record.get_review_display())

    def render_tags(self, value: list[str]) -> str:
        return format_html_join(
            " ", '<a class="badge badge--plain" href="?tag={}">{}</a>', ((quote(tag), tag) for tag in value)
        )


class SuiteTable(Table):
    name = tables.Column(linkify=("tasks:suite", {"name": tables.A("name")}), attrs=STRONG)
    purpose = tables.Column()
    description = tables.Column(orderable=False, default="–")
    task_count = NumberColumn(verbose_name="Tasks")
    valid_count = NumberColumn(verbose_name="Validated")
    rejected_count = NumberColumn(verbose_name="Rejected")
    reviewed = tables.BooleanColumn(verbose_name="Two reviewers", yesno="yes,–")
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "tasks/suites_empty.html"

    class Meta:
        model = Suite
        fields = (
            "name",
            "purpose",
            "description",
            "task_count",
            "valid_count",
            "rejected_count",
            "reviewed",
            "created_at",
        )

    def render_purpose(self, record: Suite) -> str:
        return record.get_purpose_display()


class MemberTable(Table):
    """Sorted by its own order and by what the tasks say; by what versions say, a whole suite would be read for a page."""

    position = NumberColumn(verbose_name="#")
    task = tables.Column(
        accessor="task__slug",
        verbose_name="Task",
        order_by="slug",
        linkify=("tasks:detail", {"slug": tables.A("task__slug")}),
        attrs=STRONG,
    )
    version = NumberColumn(accessor="task_version__number", verbose_name="Version", orderable=False)
    category = tables.Column(accessor="task__category")
    family = tables.Column(accessor="task__family", attrs=LONG)
    controls = ControlsColumn(accessor="task_version__controls_ok", orderable=False)

    empty_template = "tasks/members_empty.html"


class TrajectoryTable(Table):
    title = tables.Column(
        verbose_name="Trajectory", linkify=("tasks:trajectory", {"name": tables.A("name")}), attrs=STRONG
    )
    steps = NumberColumn()
    output_tokens = NumberColumn(verbose_name="Output tokens")
    reward = NumberColumn(default="–")
    created_by = tables.Column(verbose_name="Created by", orderable=False, default="–")
    created_at = AgoColumn(verbose_name="Imported")

    empty_template = "tasks/trajectories_empty.html"

    class Meta:
        model = ImportedTrajectory
        fields = (
            "title",
            "format",
            "task",
            "agent",
            "model",
            "steps",
            "output_tokens",
            "reward",
            "created_by",
            "created_at",
        )


class GeneratorRunTable(Table):
    generator = tables.Column(attrs=STRONG)
    package = tables.Column()
    split = tables.Column()
    tried = NumberColumn()
    kept = NumberColumn()
    share = tables.Column(verbose_name="Yield", attrs=NUMBER, orderable=False)
    per_minute = tables.Column(verbose_name="Kept a minute", attrs=NUMBER, orderable=False)
    seconds = tables.Column(verbose_name="Wall time", attrs=NUMBER)
    control_seconds = tables.Column(verbose_name="Validation", attrs=NUMBER)
    model_tokens = NumberColumn(verbose_name="Model tokens")
    rejected = tables.Column(verbose_name="Why not", orderable=False, default="–")
    created_at = AgoColumn(verbose_name="Run")

    empty_template = "tasks/generators_empty.html"

    class Meta:
        model = GeneratorRun
        fields = (
            "generator",
            "package",
            "split",
            "tried",
            "kept",
            "share",
            "per_minute",
            "seconds",
            "control_seconds",
            "model_tokens",
            "rejected",
            "created_at",
        )

    def render_share(self, value: float) -> str:
        return f"{value:.0%}"

    def render_per_minute(self, value: float) -> str:
        return f"{value:.1f}"

    def render_seconds(self, value: float) -> str:
        return f"{value:.1f} s"

    render_control_seconds = render_seconds

    def render_rejected(self, value: dict[str, int]) -> str:
        return ", ".join(f"{count} × {reason}" for reason, count in sorted(value.items(), key=lambda item: -item[1]))
