"""What filters of several entities share."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet


def slug_contains(query: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
    """A part of a slug in either case. Slugs are lower-case: a plain comparison is one that Postgres can estimate, while
    for one without case it guesses, and then joins a million rows the wrong way round."""
    return query.filter(**{f"{name}__contains": value.lower()})
