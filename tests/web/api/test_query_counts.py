"""How often each page and each list of the API asks the database: as often as is written here, however many rows.

A change of these tables is a decision: no page asks once a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import DEFAULT_PROJECT, User
from composer_web.env import env
from composer_web.runs.training import redispatch
from composer_web.system import reconcile
from tests.browser import benchmark, seed
from tests.web.addresses import operations, pages
from tests.web.doubling import double
from tests.web.seeded import few, the_rest

pytestmark = [pytest.mark.integration, pytest.mark.django_db, pytest.mark.timeout(900)]

QUERIES: dict[str, int] = {
    "": 24,
    "alerts/": 7,
    "alerts/deliveries/": 7,
    "alerts/rules/": 6,
    "alerts/rules/<int:pk>/": 7,
    "alerts/webhooks/": 5,
    "alerts/webhooks/<int:pk>/": 5,
    "annotations/": 8,
    "api/v1/alerts": 3,
    "api/v1/alerts/deliveries": 3,
    "api/v1/alerts/notices": 3,
    "api/v1/alerts/rules": 3,
    "api/v1/alerts/webhooks": 3,
    "api/v1/annotations": 3,
    "api/v1/audit": 3,
    "api/v1/curation/changes": 3,
    "api/v1/curation/disagreements": 4,
    "api/v1/curation/facets": 7,
    "api/v1/curation/next": 4,
    "api/v1/curation/tasks/{slug}/reviews": 6,
    "api/v1/docs": 4,
    "api/v1/corpora": 4,
    "api/v1/corpora/{name}": 3,
    "api/v1/datasets": 3,
    "api/v1/datasets/{dataset_id}": 3,
    "api/v1/drafts": 3,
    "api/v1/drafts/{draft_id}": 3,
    "api/v1/endpoints": 3,
    "api/v1/environments": 3,
    "api/v1/environments/repositories": 3,
    "api/v1/environments/{name}": 3,
    "api/v1/environments/{name}/log": 3,
    "api/v1/evaluations": 3,
    "api/v1/evaluations/tasks/{slug}": 4,
    "api/v1/evaluations/{evaluation_id}": 3,
    "api/v1/evaluations/{evaluation_id}/export/inspect": 5,
    "api/v1/exports": 3,
    "api/v1/exports/{export_id}": 3,
    "api/v1/findings": 3,
    "api/v1/findings/rules": 2,
    "api/v1/findings/{finding_id}": 4,
    "api/v1/forks/{fork_id}": 4,
    "api/v1/gateway/sessions": 3,
    "api/v1/gateway/sessions/{session_id}": 7,
    "api/v1/gateway/sessions/{session_id}/atif": 7,
    "api/v1/gateway/settings": 3,
    "api/v1/groups": 3,
    "api/v1/groups/{group_id}/comparison": 4,
    "api/v1/groups/{group_id}": 4,
    "api/v1/health": 12,
    "api/v1/health/usage": 3,
    "api/v1/health/workers": 3,
    "api/v1/runs/{run_id}/logs/lines": 4,
    "api/v1/runs/{run_id}/system/usage": 5,
    "api/v1/people": 4,
    "api/v1/people/invitations": 3,
    "api/v1/measurements": 3,
    "api/v1/measurements/{order_id}": 3,
    "api/v1/policies": 3,
    "api/v1/policies/{name}": 4,
    "api/v1/policies/{name}/measurements": 5,
    "api/v1/policy-imports": 3,
    "api/v1/policy-imports/{import_id}": 3,
    "api/v1/projects": 2,
    "api/v1/projects/{slug}/members": 4,
    "api/v1/promotions": 3,
    "api/v1/promotions/gate": 3,
    "api/v1/quotas": 6,
    "api/v1/releases": 3,
    "api/v1/releases/{benchmark}/{number}": 3,
    "api/v1/releases/{benchmark}/{number}/standings": 9,
    "api/v1/reports": 3,
    "api/v1/reports/{report_id}": 3,
    "api/v1/review": 3,
    "api/v1/review/{name}": 3,
    "api/v1/review/{name}/agreement": 4,
    "api/v1/review/{name}/disagreements": 5,
    "api/v1/review/{name}/next": 5,
    "api/v1/rollouts": 3,
    "api/v1/rollouts/{rollout_id}": 3,
    "api/v1/rollouts/{rollout_id}/trajectory": 3,
    "api/v1/runs": 3,
    "api/v1/runs/presets": 2,
    "api/v1/runs/{run_id}": 6,
    "api/v1/runs/{run_id}/charts/panels": 5,
    "api/v1/runs/{run_id}/config": 3,
    "api/v1/runs/{run_id}/events": 4,
    "api/v1/runs/{run_id}/files": 24,
    "api/v1/runs/{run_id}/insights": 4,
    "api/v1/runs/{run_id}/metrics": 5,
    "api/v1/studies": 3,
    "api/v1/studies/{study_id}": 5,
    "api/v1/suites": 3,
    "api/v1/suites/{name}": 3,
    "api/v1/suites/{name}/difficulty": 4,
    "api/v1/suites/{name}/tasks": 4,
    "api/v1/sweeps": 3,
    "api/v1/sweeps/{sweep_id}": 4,
    "api/v1/tasks": 3,
    "api/v1/tasks/generation-jobs": 3,
    "api/v1/tasks/generation-jobs/{job_id}": 3,
    "api/v1/tasks/generators": 3,
    "api/v1/tasks/generators/orders": 3,
    "api/v1/tasks/{slug}": 4,
    "api/v1/templates": 3,
    "api/v1/templates/{template_id}": 3,
    "api/v1/tokens": 3,
    "api/v1/views": 3,
    "api/v1/runs/views": 3,
    "api/v1/rollouts/queries": 3,
    "api/v1/whoami": 3,
    "audit/": 7,
    "audit/export.csv": 3,
    "datasets/": 7,
    "datasets/<int:pk>/": 5,
    "datasets/corpora/": 6,
    "datasets/corpora/<str:name>/": 5,
    "datasets/new/": 6,
    "datasets/new-corpus/": 7,
    "drafts/": 7,
    "drafts/<int:pk>/": 5,
    "environments/": 7,
    "environments/<int:pk>/": 11,
    "environments/new/": 4,
    "evaluations/": 9,
    "evaluations/<int:pk>/": 12,
    "evaluations/<int:pk>/download/": 5,
    "evaluations/<int:pk>/preview/": 4,
    "evaluations/releases/": 8,
    "evaluations/releases/<slug:benchmark>/<int:number>/": 17,
    "evaluations/tasks/<slug:slug>/": 6,
    "findings/": 8,
    "findings/<int:pk>/": 10,
    "findings/<int:pk>/preview/": 3,
    "findings/figures/": 3,
    "findings/redteam/": 4,
    "generators/": 11,
    "groups/<int:pk>/": 6,
    "imports/": 8,
    "notifications/": 5,
    "people/": 8,
    "policies/": 8,
    "policies/<str:name>/": 20,
    "policies/<str:name>/measured/": 6,
    "policies/<str:name>/preview/": 5,
    "policies/imports/": 3,
    "projects/": 4,
    "projects/<slug:slug>/": 6,
    "promotion/": 11,
    "promotion/preview/": 2,
    "reports/": 7,
    "reports/new/": 5,
    "reports/add/": 3,
    "reports/<int:pk>/": 6,
    "reports/<int:pk>/edit/": 8,
    "review/": 7,
    "review/new/count/": 3,
    "review/<slug:name>/": 9,
    "review/<slug:name>/<int:pk>/": 14,
    "review/<slug:name>/preview/": 6,
    "rollouts/": 9,
    "rollouts/<int:pk>/": 13,
    "rollouts/<int:pk>/annotations/": 5,
    "rollouts/<int:pk>/annotations/choices/": 5,
    "rollouts/<int:pk>/download/": 3,
    "rollouts/<int:pk>/export/<slug:form>/": 3,
    "rollouts/<int:pk>/preview/": 3,
    "rollouts/<int:pk>/search/": 3,
    "rollouts/<int:pk>/tokens/": 5,
    "rollouts/<int:pk>/turns/": 5,
    "rollouts/bulk/choices/": 5,
    "rollouts/exports/": 5,
    "rollouts/snippets/": 2,
    "rollouts/waffle/<int:run_id>/": 8,
    "runs/": 8,
    "runs/<int:pk>/": 14,
    "runs/<int:pk>/files/": 24,
    "runs/<int:pk>/config.toml": 3,
    "runs/<int:pk>/config.yaml": 3,
    "runs/<int:pk>/marks/": 4,
    "runs/<int:pk>/metrics/": 3,
    "runs/<int:pk>/preview/": 3,
    "runs/compare/": 5,
    "runs/compare/others/": 3,
    "runs/further/": 2,
    "runs/facets/": 8,
    "runs/names/": 3,
    "runs/new/": 24,
    "runs/sweeps/": 7,
    "runs/sweeps/<int:pk>/": 6,
    "runs/studies/": 7,
    "runs/studies/<int:pk>/": 7,
    "runs/studies/new/": 13,
    "runs/templates/": 5,
    "gateway/sessions/": 7,
    "gateway/sessions/<int:pk>/": 12,
    "gateway/sessions/<int:pk>/download.<slug:form>": 7,
    "gateway/settings/": 6,
    "suites/": 7,
    "suites/<slug:name>/": 10,
    "suites/<slug:name>/difficulty/": 8,
    "suites/<slug:name>/preview/": 4,
    "system/": 18,
    "system/fidelity/": 6,
    "system/quotas/": 11,
    "system/reconcile/": 26,
    "tasks/": 9,
    "tasks/<slug:slug>/": 13,
    "tasks/<slug:slug>/compare/": 7,
    "tasks/<slug:slug>/preview/": 5,
    "tasks/changes/": 6,
    "tasks/disagreements/": 6,
    "tasks/facets/": 3,
    "tasks/review/<slug:slug>/": 15,
    "tokens/": 5,
    "failures/": 3,
    "hardware/": 4,
    "search/": 3,
    "runs/recent/": 3,
    "runs/switch/": 3,
    "runs/<int:run_id>/rollouts/": 11,
    "runs/<int:pk>/charts/": 12,
    "runs/<int:pk>/evals/": 7,
    "runs/<int:pk>/config/": 6,
    "runs/<int:pk>/logs/": 8,
    "runs/<int:pk>/system/": 9,
    "runs/<int:pk>/system/usage/": 5,
}
"""Route → queries of an admin's second look, log-in included."""
ONCE = {"ops.Quota", "runs.Metric"}
"""Tables that hold a row once for what it is about, whatever else there is: they do not grow in both copies."""


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[seed.World]:
    """The seeded product with something on every page."""
    with django_db_blocker.unblock(), transaction.atomic():  # type: ignore[attr-defined]
        made = few()
        benchmark.benchmark(made.people)
        the_rest(made.people["operator"], "Quartz")
        yield made
        transaction.set_rollback(True)


def counts(user: User) -> dict[str, int]:
    """Route → queries, of everything that answers an admin with a page or a document."""
    found = {}
    visitor = Client()
    visitor.force_login(user)
    for address in [*pages(), *operations()]:
        if address.method == "GET" and address.role is not None:
            path = address.path(DEFAULT_PROJECT)
            assert path is not None, f"{address}: the world has no such thing; make one in `seeded.the_rest`"
            with CaptureQueriesContext(connection) as seen:
                answer = visitor.get(path)
            if answer.status_code == 200:
                found[address.route] = len(seen)
    return found


def test_no_page_and_no_operation_asks_once_a_row(world: seed.World, monkeypatch: pytest.MonkeyPatch) -> None:
    """First a second world beside the first, then everything inside both of them twice: four times the rows."""
    with redis.Redis.from_url(env().redis_url) as client:
        client.flushdb()  # messages of other tests are work that the reconciler leaves alone
    for module in (reconcile, redispatch):  # what they look at is no matter of how long the test takes
        monkeypatch.setattr(module, "SILENT", timedelta(0))
    counts(world.people["admin"])  # fills caches
    before = counts(world.people["admin"])
    beside, inside = double(), double(inside=True)
    assert {name for name, (some, more) in beside.items() if more == some} == {"ops.Quota"}
    assert {name for name, (some, more) in inside.items() if more == some} == ONCE
    assert counts(world.people["admin"]) == before
    assert before == QUERIES
