"""The toolbar of a list: its search field, and the filters in force as chips that take them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import template
from django.forms import BoundField
from django.utils.safestring import SafeString
from django_filters import FilterSet

register = template.Library()

SEARCHES = ("q", "text", "task", "name")
"""Names of the filter that is the search field, the first that a list has."""


@dataclass(frozen=True, slots=True)
class Active:
    """A filter in force. `query` is the list's query string without it."""

    name: str
    label: str
    value: str
    query: str


@register.filter
def search_field(found: FilterSet) -> BoundField | None:
    """The field of the toolbar's search line. None for a list that is not searched by text."""
    name = next((name for name in SEARCHES if name in found.form.fields), None)
    return found.form[name] if name else None


@register.filter
def search_widget(field: BoundField) -> SafeString:
    """The search field with what it searches as its placeholder."""
    words = "Search" if field.label == "Search" else f"Search {str(field.label).lower()}"
    return field.as_widget(attrs={"placeholder": words})


@register.simple_tag(takes_context=True)
def active_filters(context: template.Context, found: FilterSet) -> list[Active]:
    """Filters in force, in the form's order, without the search."""
    given = context["request"].GET
    search = search_field(found)
    active = []
    for name, field in found.form.fields.items():
        values = [value for value in given.getlist(name) if value]
        if not values or (search is not None and name == search.name):
            continue
        known = {str(value): str(label) for value, label in getattr(field, "choices", ())}
        rest = given.copy()
        for gone in (name, "page"):
            rest.pop(gone, None)
        told = getattr(field, "told", lambda value: value)
        shown = ", ".join(known.get(value, told(value)) for value in values)
        query: Any = rest.urlencode()
        active.append(Active(name, str(field.label), shown, f"?{query}" if query else ""))
    return active
