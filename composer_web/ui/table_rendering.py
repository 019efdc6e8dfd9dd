"""Renders the body of a table as HTML. Properties that are the same for every row of a column are computed once: the
arguments of its `render`, its accessor, and its cells' class. `django_tables2` and its templates compute them per cell,
which took most of the time of a list of 50 rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import Field, Model
from django.template.base import render_value_in_context
from django.template.context import Context
from django.utils.html import escape
from django.utils.safestring import SafeData, SafeString
from django_tables2.columns import ManyToManyColumn
from django_tables2.columns.base import BoundColumn
from django_tables2.columns.linkcolumn import BaseLinkColumn
from django_tables2.rows import BoundRow
from django_tables2.tables import Table
from django_tables2.utils import Accessor

Draw = Callable[[BoundRow], str]
"""A cell's content as HTML."""
Read = Callable[[Any], Any]
"""A record's value."""
Call = Callable[[Any, BoundRow], Any]
"""A callable with a cell's value and row."""

GIVEN = ("value", "record", "column", "bound_column", "bound_row", "table")
"""Argument names that `render` and a link's URL may use."""


def body(table: Table) -> SafeString:
    """All rows on the table's current page."""
    cells = [(_opening(column), _drawer(column, table)) for column in table.columns]
    return SafeString(  # `shown` escaped every part
        "\n".join(
            f"<tr>{''.join([f'{opening}{draw(row)}</td>' for opening, draw in cells])}</tr>"
            for row in table.paginated_rows
        )
    )


def shown(value: Any) -> str:
    """Value as a template shows it: escaped unless safe, with localised times and numbers."""
    if isinstance(value, SafeData):
        return str(value)
    return escape(value) if isinstance(value, str) else render_value_in_context(value, Context())


def _opening(column: BoundColumn) -> str:
    name = column.attrs["td"].get("class")
    return f'<td class="{escape(name)}">' if name else "<td>"


def _drawer(column: BoundColumn, table: Table) -> Draw:
    if isinstance(column.column, ManyToManyColumn | BaseLinkColumn):  # they ask more of a cell than its value
        return lambda row: shown(row.get_cell(column.name))
    read, render, link = _reader(column.accessor, table), _caller(column.render, column, table), _linker(column, table)
    empty, default = column.column.empty_values, shown(column.default)

    def draw(row: BoundRow) -> str:
        value = read(row.record)
        if value in empty:
            return default
        content = shown(render(value, row))
        return link(content, value, row) if link else content

    return draw


def _reader(accessor: Accessor, table: Table) -> Read:
    """Read a value like `django_tables2`: the label of a choice, None if the path ends early."""
    *path, last = accessor.bits
    field = _field(table.data.model, path, last)
    if field is None:
        return lambda record: accessor.resolve(record, quiet=True)
    display = f"get_{last}_display" if field.choices else ""

    def read(record: Any) -> Any:
        for bit in path:
            record = getattr(record, bit)
            if record is None:
                return None
        return getattr(record, display)() if display else getattr(record, last)

    return read


def _field(model: type[Model] | None, path: list[str], last: str) -> Field[Any, Any] | None:
    """Field at the end of the path, if only to-one relations lead there and it holds a value."""
    for bit in path:
        relation = _own(model, bit)
        model = relation.related_model if relation is not None and relation.is_relation else None
    return _own(model, last)


def _own(model: type[Model] | None, name: str) -> Field[Any, Any] | None:
    if model is None:
        return None
    try:
        field = model._meta.pk if name == "pk" else model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return field if isinstance(field, Field) and not field.many_to_many else None


def _caller(function: Callable[..., Any], column: BoundColumn, table: Table) -> Call:
    """The function with its arguments from GIVEN bound."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        names = set(GIVEN)
    else:
        names = {each.name for each in parameters if each.kind is not each.VAR_POSITIONAL}
    if unknown := names - set(GIVEN):
        raise TypeError(f"column {column.name}: nothing is given as {', '.join(sorted(unknown))}; {GIVEN} are")
    same = {"column": column.column, "bound_column": column, "table": table}
    fixed = {name: value for name, value in same.items() if name in names}
    wants = tuple(name in names for name in ("value", "record", "bound_row"))
    if wants == (True, False, False):
        return lambda value, row: function(value=value, **fixed)
    if wants == (False, True, False):
        return lambda value, row: function(record=row.record, **fixed)

    def call(value: Any, row: BoundRow) -> Any:
        varying = {"value": value, "record": row.record, "bound_row": row}
        return function(**{name: varying[name] for name in names & varying.keys()}, **fixed)

    return call


def _linker(column: BoundColumn, table: Table) -> Callable[[str, Any, BoundRow], str] | None:
    """Wrap a cell in the column's link. None without a link."""
    link = column.link
    if link is None:
        return None
    ask = _caller(link.url or link.compose_url, column, table)
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in (link.attrs or {}).items())

    def wrap(content: str, value: Any, row: BoundRow) -> str:
        address = ask(value, row)
        return content if address is None else f'<a{attributes} href="{escape(address)}">{content}</a>'

    return wrap
