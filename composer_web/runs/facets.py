"""How many runs there are of each kind, beside the filters of the list: each facet counts under all other filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import CharField, Count, F, Func, QuerySet
from django.http import HttpRequest, QueryDict

from composer_web.runs.filters import RunFilter
from composer_web.runs.models import Run, RunKind
from composer_web.tasks.facets import Facet, Value

MOST = 12
"""Values of a facet that are shown, most runs first."""

Rows = list[tuple[str, str, int]]
"""Value in the address, what people read, runs."""


def facets(request: HttpRequest) -> list[Facet]:
    """Of the runs that the list shows at this address. One query a facet."""
    found = []
    for name, label, count in FACETS:
        others = request.GET.copy()
        chosen = others.pop(name, [""])[-1]
        query: Any = RunFilter(others, queryset=Run.objects.all(), request=request).qs.order_by()
        values = sorted(count(query), key=lambda row: (-row[2], row[1]))
        shown = tuple(
            Value(value, text, number, value == chosen, _address(others, name, "" if value == chosen else value))
            for value, text, number in values[:MOST]
        )
        if shown:
            found.append(Facet(name, label, shown, len(values) > MOST))
    return found


def _address(others: QueryDict, name: str, value: str) -> str:
    query = others.copy()
    query.pop("page", None)
    if value:
        query[name] = value
    return f"?{query.urlencode()}"


def _plain(column: str) -> Callable[[QuerySet[Run]], Rows]:
    def count(query: QuerySet[Run]) -> Rows:
        rows = query.exclude(**{column: None}).values_list(column).annotate(n=Count("pk"))
        return [(str(value), str(value), number) for value, number in rows]

    return count


def _kinds(query: QuerySet[Run]) -> Rows:
    return [(kind, RunKind(kind).label, number) for kind, number in query.values_list("kind").annotate(n=Count("pk"))]


def _tags(query: QuerySet[Run]) -> Rows:
    tagged = query.exclude(tags=[]).annotate(one=Func(F("tags"), function="unnest", output_field=CharField()))
    return [(tag, tag, number) for tag, number in tagged.values_list("one").annotate(n=Count("pk"))]


def _sweeps(query: QuerySet[Run]) -> Rows:
    rows = query.exclude(sweep=None).values_list("sweep_id", "sweep__name").annotate(n=Count("pk"))
    return [(str(pk), f"{name} (#{pk})", number) for pk, name, number in rows]


FACETS: tuple[tuple[str, str, Callable[[QuerySet[Run]], Rows]], ...] = (
    ("state", "State", _plain("state")),
    ("kind", "Stage", _kinds),
    ("tag", "Tags", _tags),
    ("by", "Made by", _plain("created_by__username")),
    ("policy", "Starting policy", _plain("policy_in__name")),
    ("sweep", "Sweeps", _sweeps),
)
