"""Lists that count along have an order of their own: Django leaves out a model's where rows are grouped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import QuerySet

from composer_web.alerts.rules import selectors as alerts
from composer_web.gateway.sessions import selectors as gateway
from composer_web.policies import selectors as policies
from composer_web.review import selectors as review
from composer_web.rollouts import selectors as rollouts
from composer_web.rollouts.models import Rollout
from composer_web.runs.launch import sweeps


@pytest.mark.parametrize(
    "rows",
    [
        alerts.rules,
        gateway.sessions,
        policies.policies,
        review.queues,
        sweeps.sweeps,
        lambda: rollouts.forks_of(Rollout(pk=1)),
    ],
)
def test_rows_that_count_along_are_in_order(rows: Callable[[], QuerySet[Any]]) -> None:
    query = rows().query
    assert query.group_by is not None and query.order_by
