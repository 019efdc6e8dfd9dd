"""What projects cost: how often lists ask the database, and by which index a small project's rows are found."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import DEFAULT_PROJECT, Project
from composer_web.accounts.projects import create_project, set_member
from composer_web.rollouts.models import Finding, Rollout
from tests.browser import seed
from tests.web import seeded
from tests.web.doubling import fill
from tests.web.seeded import client, count_queries

pytestmark = pytest.mark.django_db
world = seeded.world
LISTS = (
    "/",
    "/runs/",
    "/rollouts/",
    "/findings/",
    "/tasks/",
    "/suites/",
    "/policies/",
    "/evaluations/",
    "/suites/train/",
)


def test_a_second_project_costs_one_query_where_an_address_names_something(world: seed.World) -> None:
    """Which project the thing is in; lists are told by the log-in's own query."""
    operator = client(world)
    before = {path: count_queries(operator, path) for path in LISTS}
    create_project(slug="other", name="Other", actor=None)
    Project.objects.filter(pk=DEFAULT_PROJECT).update(open=False)
    default = Project.objects.get(pk=DEFAULT_PROJECT)
    set_member(project=default, username="operator", role="operator", actor=None)  # of one, not of the other
    after = {path: count_queries(client(world), path) for path in LISTS}
    assert after == {path: count + (path == "/suites/train/") for path, count in before.items()}


@pytest.mark.parametrize(
    ("path", "model", "index"),
    [("/rollouts/", Rollout, "rollout_by_project"), ("/findings/", Finding, "finding_by_project")],
)
def test_lists_of_a_small_project_are_read_by_its_index(
    world: seed.World, path: str, model: type[Rollout] | type[Finding], index: str
) -> None:
    """The newest of a project with 1 % of 20,000 rows, all older than those of the others."""
    other = create_project(slug="other", name="Other", actor=None)
    set_member(project=other, username="viewer", role="operator", actor=None)
    fill(model, 200, project=other.pk)
    fill(model, 20_000, project=DEFAULT_PROJECT)
    with CaptureQueriesContext(connection) as seen:
        assert client(world, "viewer").get(f"{path}?project=other").status_code == 200
    table = model._meta.db_table
    page = next(query["sql"] for query in seen if f'FROM "{table}"' in query["sql"] and "LIMIT" in query["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {page}")  # which rows are on the page; what they show is then read by key
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert index in plan and f"Seq Scan on {table}" not in plan, plan
