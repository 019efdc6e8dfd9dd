"""Lists load what they show: not what a run was configured with, nor the conditions of an evaluation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import User
from composer_web.evals import services
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite

pytestmark = pytest.mark.django_db

LONG = ("config", "conditions", "architecture", "recipe", "statistics", "contamination")
"""Columns that only the page of one thing shows."""


@pytest.mark.parametrize("path", ["/", "/runs/", "/evaluations/", "/api/v1/runs", "/api/v1/evaluations"])
def test_no_list_loads_what_only_a_page_of_its_own_shows(
    path: str,
    draft: Run,
    people: dict[str, User],
    bearer: Callable[..., dict[str, str]],
    make_suite: Callable[..., Suite],
) -> None:
    services.evaluate(reference=draft.policy_in.name, suite=make_suite("measured"), tasks=2, samples=2, temperature=0.8)
    visitor, headers = Client(), bearer("viewer") if path.startswith("/api/") else {}
    if not headers:
        visitor.force_login(people["viewer"])
    with CaptureQueriesContext(connection) as seen:
        answer = visitor.get(path, headers=headers)
    assert draft.policy_in.name in answer.content.decode()
    assert not [query["sql"] for query in seen if any(f'."{column}"' in query["sql"] for column in LONG)]
