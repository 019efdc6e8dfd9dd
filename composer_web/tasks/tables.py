"""Tables of tasks and suites."""

from __future__ import annotations

import django_tables2 as tables

from composer_web.ops.tables import NUMBER, STRONG, AgoColumn, NumberColumn, Table, TickColumn
from composer_web.ops.templatetags import ui
from composer_web.tasks.models import Suite, Task


class ControlsColumn(tables.Column):
    """None: not run; True: the oracle passes and doing nothing fails; False: rejected."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, empty_values=(), verbose_name="Controls", **kwargs)

    def render(self, value: bool | None) -> str:
        return {None: ui.badge("not run"), True: ui.badge("passed"), False: ui.badge("failed", "rejected")}[value]


class StrengthColumn(tables.Column):
    """Share of the oracle's mutants that the hidden tests reject."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, verbose_name="Test strength", default="–", attrs=NUMBER, **kwargs)

    def render(self, value: float) -> str:
        return f"{value:.0%}"


class TaskTable(Table):
    select = TickColumn("task")
    slug = tables.Column(verbose_name="Task", linkify=("tasks:detail", {"slug": tables.A("slug")}), attrs=STRONG)
    newest_number = NumberColumn(verbose_name="Version")
    controls_ok = ControlsColumn()
    test_strength = StrengthColumn()
    created_at = AgoColumn(verbose_name="Made")

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
            "created_at",
        )


class SuiteTable(Table):
    name = tables.Column(linkify=("tasks:suite", {"name": tables.A("name")}), attrs=STRONG)
    purpose = tables.Column()
    description = tables.Column(orderable=False, default="–")
    task_count = NumberColumn(verbose_name="Tasks")
    valid_count = NumberColumn(verbose_name="Controls passed")
    rejected_count = NumberColumn(verbose_name="Rejected")
    created_at = AgoColumn(verbose_name="Made")

    empty_template = "tasks/empty.html"

    class Meta:
        model = Suite
        fields = ("name", "purpose", "description", "task_count", "valid_count", "rejected_count", "created_at")

    def render_purpose(self, record: Suite) -> str:
        return record.get_purpose_display()


class MemberTable(Table):
    position = NumberColumn(verbose_name="#")
    task = tables.Column(
        accessor="task_version__task__slug",
        linkify=("tasks:detail", {"slug": tables.A("task_version__task__slug")}),
        attrs=STRONG,
    )
    version = NumberColumn(accessor="task_version__number", verbose_name="Version")
    category = tables.Column(accessor="task_version__task__category")
    family = tables.Column(accessor="task_version__task__family")
    controls = ControlsColumn(accessor="task_version__controls_ok")

    empty_template = "tasks/empty.html"
