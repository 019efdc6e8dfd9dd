"""Facet counts beside the filters of the run list. Each facet applies all other filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import CharField, Count, F, Func, QuerySet
from django.http import HttpRequest

from composer_web.runs.http.filters import RunFilter
from composer_web.runs.models import Run, RunKind
from composer_web.ui.facets import Facet, facet, others
from composer_web.ui.filters import strict

Rows = list[tuple[str, str, int]]
"""(URL value, label, number of runs)."""


def facets(request: HttpRequest) -> list[Facet]:
    """Facets of the runs that the list shows at this URL. One query per facet."""
    found = []
    for name, label, count in FACETS:
        rest, chosen = others(request.GET, name)
        query: Any = strict(RunFilter, rest, queryset=Run.objects.all(), request=request).qs.order_by()
        if (one := facet(name, label, count(query), rest=rest, chosen=chosen)) is not None:
            found.append(one)
    return found


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
    ("by", "Created by", _plain("created_by__username")),
    ("policy", "Starting policy", _plain("policy_in__name")),
    ("sweep", "Sweeps", _sweeps),
)
