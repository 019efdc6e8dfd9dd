"""Keyset pages and filters shared by all lists."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django_filters import FilterSet

from composer_web.ui.filters import strict

MAX_PAGE = 200
M = TypeVar("M", bound=Model)

OWN = {"limit", "before", "after", "project"}


def page(query: QuerySet[M], *, limit: int, before: int | None) -> dict[str, Any]:
    """Rows by descending id, below `before`; one more is asked for to know whether another page follows."""
    if before is not None:
        query = query.filter(pk__lt=before)
    rows = list(query.order_by("-pk")[: limit + 1])
    return {"items": rows[:limit], "next": rows[limit - 1].pk if len(rows) > limit else None}


def filtered(filters: type[FilterSet], request: HttpRequest, query: QuerySet[M]) -> QuerySet[M]:
    """The page's own FilterSet over the query string. Raises WrongFilter for a wrong value or an unknown name."""
    result: QuerySet[M] = strict(filters, request.GET, queryset=query, request=request, own=OWN).qs
    return result
