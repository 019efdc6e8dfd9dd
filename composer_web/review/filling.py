"""Fills a queue with the rollouts that match the filters of the rollouts page, newest first."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import QueryDict

from composer_web.core.errors import UserError
from composer_web.review.models import Queue
from composer_web.rollouts import selectors
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.search.filters import RolloutFilter
from composer_web.ui.filters import WrongFilter, strict


def found_by(text: str) -> QuerySet[Rollout]:
    """Rollouts of the filters that an address of the rollouts list holds. Raises UserError."""
    query = QueryDict(text.partition("?")[2] or text)
    try:
        rows: QuerySet[Rollout] = strict(RolloutFilter, query, queryset=selectors.rollouts()).qs
    except WrongFilter as error:
        raise UserError("filters", error.message) from error
    return rows


PREFIX = "f"
"""Prefix of the filter fields in queue forms."""


def asked(given: QueryDict) -> str:
    """Filters of a form as a query string of the rollout list: from the form's fields, or from a query string in
    `filters`."""
    query = QueryDict(mutable=True)
    for name in RolloutFilter.base_filters:
        if value := given.get(f"{PREFIX}-{name}", "").strip():
            query[name] = value
    return query.urlencode() or given.get("filters", "")


def fields(filters: str) -> RolloutFilter:
    """The filters as fields of a form, filled in from a query string."""
    query = QueryDict(filters.partition("?")[2] or filters)
    data = {f"{PREFIX}-{name}": query[name] for name in query if name in RolloutFilter.base_filters}
    return RolloutFilter(data, queryset=Rollout.objects.none(), prefix=PREFIX)


def recorded(rollouts: QuerySet[Rollout], queue: Queue | None = None) -> QuerySet[Rollout]:
    """Those of them that can be judged, without the ones that are in the queue already; newest first."""
    rows = selectors.readable(rollouts)
    if queue is not None:
        rows = rows.exclude(queue_items__queue=queue)
    return rows.order_by("-pk")
