"""Counts beside the filters of a list: each value of a facet is a link to the list that it narrows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.http import QueryDict

MOST = 12
"""Values of a facet that are shown, those with most rows first."""
Row = tuple[str, str, int]
"""Value in the address, what people read, rows of the list."""
OF_THE_PAGE = ("page", "only")
"""Parameters that belong to one page of a list, or to the request for one facet."""


@dataclass(frozen=True, slots=True)
class Value:
    value: str
    label: str
    count: int
    chosen: bool
    address: str
    """Query string of the list with this value chosen, or given up again."""


@dataclass(frozen=True, slots=True)
class Facet:
    """Values of one filter with the rows of each; `more` says that some are not shown."""

    name: str
    label: str
    values: tuple[Value, ...]
    more: bool

    @property
    def chosen(self) -> bool:
        """One of its values narrows the list."""
        return any(one.chosen for one in self.values)


def others(given: QueryDict, name: str) -> tuple[QueryDict, str]:
    """The address without this facet, and what the facet has chosen there: it counts under all other filters."""
    rest = given.copy()
    return rest, rest.pop(name, [""])[-1]


def facet(name: str, label: str, rows: Iterable[Row], *, rest: QueryDict, chosen: str) -> Facet | None:
    """None when no row has any of its values."""
    values = sorted(rows, key=lambda row: (-row[2], row[1]))
    shown = tuple(
        Value(value, text, number, value == chosen, _address(rest, name, "" if value == chosen else value))
        for value, text, number in values[:MOST]
        if number
    )
    return Facet(name, label, shown, len(values) > MOST) if shown else None


def _address(rest: QueryDict, name: str, value: str) -> str:
    query = rest.copy()
    for own in OF_THE_PAGE:
        query.pop(own, None)
    if value:
        query[name] = value
    return f"?{query.urlencode()}"
