"""What all tables share: the empty state and right-aligned numbers."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html
from django.utils.safestring import mark_safe

from composer_web.ops.templatetags import ui

NUMBER = {"td": {"class": "num"}}
STRONG = {"td": {"class": "strong"}}


class Table(tables.Table):
    """`empty_template` is rendered when there are no rows: it says what to do."""

    empty_template = "partials/empty.html"


class TickColumn(tables.Column):
    """A box that selects its row for an action on several (js/select.js); it belongs to the form `bulk`."""

    def __init__(self, name: str) -> None:
        head = mark_safe('<input type="checkbox" data-tick-all aria-label="Select all rows">')
        super().__init__(
            accessor="pk", orderable=False, verbose_name=head, attrs={"td": {"class": "tick"}}, exclude_from_export=True
        )
        self.input_name = name

    def render(self, value: Any, record: Any) -> str:
        return format_html(
            '<input type="checkbox" data-tick form="bulk" name="{}" value="{}" aria-label="Select {}">',
            self.input_name,
            value,
            record,
        )


class StateColumn(tables.Column):
    """A code with choices: `value` would be its label, the badge wants the code."""

    def render(self, record: Any, bound_column: Any) -> str:
        return ui.badge(bound_column.accessor.resolve(record))


class AgoColumn(tables.Column):
    def render(self, value: Any) -> str:
        return ui.ago(value)


class NumberColumn(tables.Column):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, attrs=NUMBER, **kwargs)

    def render(self, value: Any) -> str:
        return ui.num(value)
