"""`{% column_head column %}`: the head of a table's column, with the help of its `Table`."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django_tables2.columns.base import BoundColumn

from composer_web.ui.templatetags.states import listed
from composer_web.ui.templatetags.ui import help_button
from composer_web.ui.texts import glossary

register = template.Library()


def column_help(column: BoundColumn) -> tuple[str, str]:
    """(kinds of the states of the column, text of its help). One of them, or neither, is given."""
    own = getattr(column.column, "kinds", "")
    if own:
        return own, ""
    text = getattr(column.column, "help", None)
    if text is None:
        text = getattr(column._table, "help", {}).get(column.name)
    return "", glossary.meaning(str(column.header)) if text is None else text


@register.simple_tag(takes_context=True)
def column_head(context: template.Context, column: BoundColumn) -> SafeString | str:
    """The column's name, a link that sorts by it where it can be. Help opens by the name, or by a mark beside a link."""
    table, header = column._table, column.header
    kinds, text = column_help(column)
    shown = listed(kinds) if kinds else text
    name = f"head-{table.prefix or ''}{column.name}"
    if not column.orderable:
        return help_button(name, header, shown) if shown else header
    order = column.order_by_alias
    way = ("desc" if order.is_descending else "asc") if column.is_ordered else ""
    query = context["request"].GET.copy()
    query[table.prefixed_order_by_field] = order.next
    query.pop(table.prefixed_page_field, None)
    head = format_html('<a class="{}" href="?{}">{}</a>', way, query.urlencode(), header)
    return format_html("{} {}", head, help_button(name, header, shown, mark=True)) if shown else head
