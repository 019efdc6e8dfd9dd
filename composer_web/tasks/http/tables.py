"""Tables of tasks and suites."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import quote

import django_tables2 as tables
from django.utils.html import format_html, format_html_join

from composer_web.tasks.models import GeneratorRun, ImportedTrajectory, Suite, Task
from composer_web.ui.tables import NUMBER, STRONG, AgoColumn, ChosenTable, NumberColumn, StateColumn, Table, TickColumn
from composer_web.ui.templatetags import ui


class ControlsColumn(StateColumn):
    """None: not run; True: the oracle passes and doing nothing fails; False: rejected."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__("validation", *args, empty_values=(), verbose_name="Validation", **kwargs)

    def render(self, value: bool | None) -> str:  # type: ignore[override]
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
    help: ClassVar = {
        "source": "Where the task comes from: a generator, an import, or a rollout.",
        "family": "Generator and package, or repository, that the task was made from.",
        "newest_number": "Newest version. Suites keep the version that they hold.",
        "pass_rate": "Share of rollouts that passed when the newest version was last measured, by whichever policy.",
    }
    select = TickColumn("task")
    slug = tables.Column(verbose_name="Task", linkify=("tasks:detail", {"slug": tables.A("slug")}), attrs=NAME)
    family = tables.Column()
    newest_number = NumberColumn(verbose_name="Version")
    controls_ok = ControlsColumn()
    test_strength = ShareColumn(verbose_name="Test strength")
    pass_rate = ShareColumn(verbose_name="Pass rate")
    review = StateColumn("review")
    split = StateColumn("split", verbose_name="Split", default="–")
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

    def render_split(self, value: str) -> str:
        return value

    def render_family(self, value: str) -> str:
        return format_html('<span class="clip clip--short" title="{}">{}</span>', value, value)

    def render_review(self, record: Task) -> str:
        return ui.badge(record.review, record.get_review_display())

    def render_tags(self, value: list[str]) -> str:
        return format_html_join(
            " ", '<a class="badge badge--plain" href="?tag={}">{}</a>', ((quote(tag), tag) for tag in value)
        )


class SuiteTable(Table):
    help: ClassVar = {"task_count": "", "reviewed": "Only tasks that two reviewers admit may join."}
    name = tables.Column(linkify=("tasks:suite", {"name": tables.A("name")}), attrs=STRONG)
    purpose = StateColumn("suite")
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

    help: ClassVar = {
        "position": "Place in the suite.",
        "version": "Version of the task that the suite holds. It stays when the task gets a newer one.",
        "family": TaskTable.help["family"],
    }

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
    help: ClassVar = {
        "format": "Format of the imported file.",
        "task": "Task as the file names it.",
        "agent": "Program that drove the model.",
        "output_tokens": "Tokens that the agent's model wrote, as the file says.",
        "reward": "Reward as the file says. Nothing was graded here.",
    }
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
    help: ClassVar = {
        "generator": "Program that makes tasks of a package.",
        "package": "Library whose code the tasks are made from.",
        "tried": "Drafts that the generator made.",
        "kept": "Drafts that passed validation.",
        "share": "Kept of tried drafts.",
        "per_minute": "Kept drafts per minute of wall time.",
        "seconds": "Time from start to end, validation included.",
        "control_seconds": "Time of that which validation took.",
        "model_tokens": "Tokens that a model wrote for it: instructions and code.",
        "rejected": "Reasons of the drafts that were not kept, with their number.",
    }
    generator = tables.Column(attrs=STRONG)
    package = tables.Column()
    split = StateColumn("split")
    tried = NumberColumn()
    kept = NumberColumn()
    share = tables.Column(verbose_name="Yield", attrs=NUMBER, orderable=False)
    per_minute = tables.Column(verbose_name="Kept per minute", attrs=NUMBER, orderable=False)
    seconds = tables.Column(verbose_name="Wall time", attrs=NUMBER)
    control_seconds = tables.Column(verbose_name="Validation", attrs=NUMBER)
    model_tokens = NumberColumn(verbose_name="Model tokens")
    rejected = tables.Column(verbose_name="Rejected because", orderable=False, default="–")
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

    def render_split(self, value: str) -> str:
        return value

    def render_share(self, value: float) -> str:
        return f"{value:.0%}"

    def render_per_minute(self, value: float) -> str:
        return f"{value:.1f}"

    def render_seconds(self, value: float) -> str:
        return f"{value:.1f} s"

    render_control_seconds = render_seconds

    def render_rejected(self, value: dict[str, int]) -> str:
        return ", ".join(f"{count} × {reason}" for reason, count in sorted(value.items(), key=lambda item: -item[1]))
