"""What all tables share: the empty state and right-aligned numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import django_tables2 as tables
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django_tables2.rows import BoundRows as TableRows

from composer_web.ui import table_rendering
from composer_web.ui.templatetags import ui

NUMBER = {"td": {"class": "num"}}
STRONG = {"td": {"class": "strong"}}

MAX_COUNTED = 10_000
"""Rows of a list that are counted and paged through; beyond, a filter or the other end of the order leads there."""


class BoundedPaginator(Paginator):
    """Counts at most MAX_COUNTED rows: an exact count of a million takes longer than the rest of the page."""

    @cached_property
    def count(self) -> int:
        return min(self._counted, MAX_COUNTED)

    @property
    def more(self) -> bool:
        """There are more rows than were counted."""
        return self._counted > MAX_COUNTED

    @cached_property
    def _counted(self) -> int:
        if (known := getattr(getattr(self.object_list, "table", None), "known_count", None)) is not None:
            return int(known)
        if self._query is not None:
            return self._query.order_by().values("pk")[: MAX_COUNTED + 1].count()
        return len(self.object_list)

    @property
    def _query(self) -> QuerySet[Any] | None:
        """What is paged through; the rows of a table hide their query."""
        rows = getattr(self.object_list, "data", self.object_list)
        query = getattr(rows, "data", rows)
        return query if isinstance(query, QuerySet) else None

    def page(self, number: int | str) -> Page[Any]:
        """Chooses the rows of a page by their ids alone, and only then joins what comes along: far down a list the
        joins of all the rows before would take most of the time."""
        if self._query is None or not isinstance(self.object_list, TableRows):
            return super().page(number)
        number = self.validate_number(number)
        bottom = (number - 1) * self.per_page
        ids = list(self._query.values_list("pk", flat=True)[bottom : bottom + self.per_page])
        rows = TableRows(data=self._query.filter(pk__in=ids), table=self.object_list.table)
        return Page(rows, number, self)


@dataclass(frozen=True, slots=True)
class PutAway:
    """Rows that a list leaves out although they fit, because they are archived."""

    count: int
    name: str
    """What they are, as many as there are."""
    narrowed: bool
    """Filters left others out."""
    address: str
    """Query string of the list that shows them."""


class Table(tables.Table):
    """`empty_template` is rendered when there are no rows: it says what to do."""

    empty_template = "partials/empty.html"
    put_away: Callable[[], PutAway | None] | None = None
    """For lists that hide archived rows. Called only when no row is left."""
    note: SafeString | str = ""
    """A line above the rows."""
    known_count: int | None = None
    """Number of rows, if another query has already counted them."""
    help: ClassVar[Mapping[str, str]] = {}
    """Name of a column → what its values mean, where its head alone leaves that open and the glossary has nothing or something
    else; empty: no help."""

    def body(self) -> SafeString:
        """Rows of this page as HTML."""
        return table_rendering.body(self)

    def paginate(self, paginator_class: type[Paginator] = BoundedPaginator, **kwargs: Any) -> None:
        super().paginate(paginator_class=paginator_class, **kwargs)


class ChosenTable(Table):
    """A table whose columns people choose and order (`cols=` in the address). `always` come first and stay; where nothing
    is chosen, all are shown but the `unusual`."""

    always: ClassVar[tuple[str, ...]] = ()
    unusual: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self, *args: Any, chosen: Sequence[str] = (), extra: Mapping[str, tables.Column] | None = None, **kwargs: Any
    ) -> None:
        """`extra` are columns besides those of the class."""
        self.extra = dict(extra or {})
        known = [name for name in dict.fromkeys(chosen) if name in self.base_columns or name in self.extra]
        shown = known or [name for name in self.base_columns if name not in self.unusual]
        hidden = [name for name in self.base_columns if name not in (*self.always, *shown)]
        super().__init__(
            *args,
            exclude=[*kwargs.pop("exclude", ()), *hidden],
            extra_columns=list(self.extra.items()),
            sequence=(*self.always, *(name for name in shown if name not in self.always)),
            **kwargs,
        )

    def offered(self) -> list[tuple[str, str, bool]]:
        """(name, label, whether it is shown) of the selectable columns: the shown ones in their order, then the others."""
        shown = [name for name in self.columns.names() if name not in self.always]
        rest = [name for name in self.base_columns if name not in (*self.always, *shown)]
        headers = {name: str(self.columns[name].header) for name in shown}
        headers |= {
            name: str(self.base_columns[name].verbose_name or name.replace("_", " ").capitalize()) for name in rest
        }
        return [(name, headers[name], name in shown) for name in (*shown, *rest)]


def chosen_columns(request: HttpRequest) -> list[str]:
    """Names of columns in the address, in their order."""
    return [name for name in request.GET.get("cols", "").split(",") if name]


class TickColumn(tables.Column):
    """A box that selects its row for an action on several (js/select.js); it belongs to the form `bulk`. `allows` names the
    actions that a row's state allows: the others are not offered while it is ticked. `called` names a row for the box."""

    def __init__(
        self,
        name: str,
        allows: Callable[[Any], Iterable[str]] | None = None,
        called: Callable[[Any], str] = str,
    ) -> None:
        head = mark_safe('<input type="checkbox" data-tick-all aria-label="Select all rows">')
        super().__init__(
            accessor="pk", orderable=False, verbose_name=head, attrs={"td": {"class": "tick"}}, exclude_from_export=True
        )
        self.input_name, self.allows, self.called = name, allows, called

    def render(self, value: Any, record: Any) -> str:
        return format_html(
            '<input type="checkbox" data-tick form="bulk" name="{}" value="{}" aria-label="Select {}"{}>',
            self.input_name,
            value,
            self.called(record),
            format_html(' data-allows="{}"', " ".join(self.allows(record))) if self.allows else "",
        )


class StateColumn(tables.Column):
    """A code with choices: `value` would be its label, the badge wants the code. `kinds`: those of its meanings
    (`texts/state_meanings.py`), which the head of the column lists; cells stay plain badges."""

    def __init__(self, kinds: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kinds = kinds

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
