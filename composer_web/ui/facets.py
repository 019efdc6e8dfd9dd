"""Facet counts beside the filters of a list. Each value links to the filtered list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.http import QueryDict

MAX = 12
"""Maximum number of values shown per facet, most rows first."""
Row = tuple[str, str, int]
"""(URL value, label, number of rows)."""
OF_THE_PAGE = ("page", "only")
"""Parameters of a single page of a list, or of the request for one facet."""


@dataclass(frozen=True, slots=True)
class Value:
    value: str
    label: str
    count: int
    chosen: bool
    address: str
    """Query string of the list with this value selected or deselected."""


@dataclass(frozen=True, slots=True)
class Facet:
    """Values of one filter with their row counts. `more` means that some are not shown."""

    name: str
    label: str
    values: tuple[Value, ...]
    more: bool

    @property
    def chosen(self) -> bool:
        """Whether one of its values is selected."""
        return any(one.chosen for one in self.values)


def others(given: QueryDict, name: str) -> tuple[QueryDict, str]:
    """Query string without this facet, and the facet's selected value. A facet counts under all other filters."""
    rest = given.copy()
    return rest, rest.pop(name, [""])[-1]


def facet(name: str, label: str, rows: Iterable[Row], *, rest: QueryDict, chosen: str) -> Facet | None:
    """None if no row has any of its values."""
    values = sorted(rows, key=lambda row: (-row[2], row[1]))
    shown = tuple(
        Value(value, text, number, value == chosen, _address(rest, name, "" if value == chosen else value))
        for value, text, number in values[:MAX]
        if number
    )
    return Facet(name, label, shown, len(values) > MAX) if shown else None


def _address(rest: QueryDict, name: str, value: str) -> str:
    query = rest.copy()
    for own in OF_THE_PAGE:
        query.pop(own, None)
    if value:
        query[name] = value
    return f"?{query.urlencode()}"
