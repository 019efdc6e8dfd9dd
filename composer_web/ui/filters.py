"""Filters shared by several entities: strict parsing of query strings, for pages, API, exports and commands."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.http import QueryDict
from django_filters import FilterSet, ModelMultipleChoiceFilter, MultipleChoiceFilter

from composer_web.core.errors import UserError

F = TypeVar("F", bound=FilterSet)
OF_PAGES = frozenset({"page", "sort", "cols", "project", "only", "into", "part"})
"""Other parameters in a list's URL: page, order and columns, the project, and separately loaded parts."""
LONGEST_VALUE = 200


class WrongFilter(UserError):
    """An unknown filter, or an invalid value. Nothing is listed, because a list that ignores a filter would look
    like its result."""


def strict(
    kind: type[F],
    given: QueryDict,
    *,
    queryset: QuerySet[Any],
    request: Any = None,
    own: Collection[str] = OF_PAGES,
) -> F:
    """Apply the filters of a query string to `queryset`. `own` lists other allowed parameters. Raises WrongFilter
    naming the filter, the value found, and the alternatives."""
    check_names(kind, given, own=own)
    found = kind(given, queryset=queryset, request=request)
    if not found.is_valid():
        fields = {name: " ".join(map(str, errors)) for name, errors in found.errors.items()}
        first = next(iter(fields))
        raise WrongFilter(first, f"{first}: {fields[first]}", fields=fields)
    return found


def check_names(kind: type[FilterSet], given: QueryDict, *, own: Collection[str] = OF_PAGES) -> None:
    """Raises WrongFilter for an unknown filter, repeated values of a single-value filter, and an overlong value."""
    known = kind.base_filters
    for name in sorted(given):
        if name in own:
            continue
        if name not in known:
            raise WrongFilter(name, f"there is no filter {name[:80]!r}; there are: {', '.join(sorted(known))}")
        values = [value for value in given.getlist(name) if value]
        several = isinstance(known[name], ModelMultipleChoiceFilter | MultipleChoiceFilter)
        if len(set(values)) > 1 and not several:
            raise WrongFilter(name, f"{name} is given {len(values)} times; it takes one value")
        if any(len(value) > LONGEST_VALUE for value in values):
            raise WrongFilter(name, f"{name}: a value has at most {LONGEST_VALUE} characters")


def slug_contains(query: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
    """Case-insensitive substring match of a slug. Slugs are lower-case, so a plain comparison suffices. Postgres can
    estimate that one, but guesses for a case-insensitive one and then joins a million rows in the wrong order."""
    return query.filter(**{f"{name}__contains": value.lower()})
