"""The JSON API: who may, what errors look like, what it describes, and how many queries a list takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from openapi_spec_validator import validate

from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.services import create_token, revoke_token
from composer_web.api_root import api
from composer_web.core.errors import UserError
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs import metrics, services
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite
from tests.web.conftest import PASSWORD
from tests.web.making import SMALL, claim, finish
from trainer.config import RunConfig

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]
CONFIG = RunConfig(name="by the API", stage=SMALL).model_dump(mode="json")


def post(client: Client, path: str, body: Any = None, **kwargs: Any) -> Any:
    return client.post(f"/api/v1{path}", data=json.dumps(body), content_type="application/json", **kwargs)


def error(response: Any) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"code", "message", "field", "fields"}, body
    return body["error"]  # type: ignore[no-any-return]


@pytest.fixture
def filled(running: Run) -> Run:
    """A run with accepted groups, metrics and events."""
    rollouts.pump(run_id=running.pk)
    for group in Group.objects.filter(run=running):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    metrics.record_many(run=running, rows=[(s, "reward/mean", s / 10) for s in range(1, 21)])
    services.add_event(run=running, kind="note", message="hello")
    return running


def test_the_description_is_valid_openapi() -> None:
    schema = json.loads(json.dumps(api.get_openapi_schema()))
    validate(schema)
    for path, operations in schema["paths"].items():
        for verb, operation in operations.items():
            assert operation["summary"], (path, verb)
            assert operation.get("security") or path.endswith("/health/live"), f"{verb} {path} is open to anybody"


def every_read() -> list[str]:
    return [
        "/runs",
        "/rollouts",
        "/groups",
        "/tasks",
        "/suites",
        "/policies",
        "/evaluations",
        "/environments",
        "/tokens",
        "/health",
    ]


@pytest.mark.parametrize("path", every_read())
def test_nothing_is_read_without_a_log_in(client: Client, path: str) -> None:
    response = client.get(f"/api/v1{path}")
    assert response.status_code == 401
    assert error(response)["code"] == "unauthenticated"


def test_a_live_probe_needs_no_log_in(client: Client) -> None:
    assert client.get("/api/v1/health/live").json() == {"ok": True}


@pytest.mark.parametrize("role", ["viewer", "reviewer"])
def test_a_viewers_session_reads_but_does_not_start(people: dict[str, User], draft: Run, role: str) -> None:
    client = Client()
    client.force_login(people[role])
    assert client.get("/api/v1/runs").status_code == 200
    response = post(client, f"/runs/{draft.pk}/start")
    assert response.status_code == 403 and "role operator" in error(response)["message"]


def test_a_token_has_its_scopes_only(client: Client, bearer: Bearer, draft: Run) -> None:
    assert client.get("/api/v1/runs", headers=bearer("operator", "read")).status_code == 200
    refused = post(client, f"/runs/{draft.pk}/start", headers=bearer("operator", "read"))
    assert refused.status_code == 403 and "'operate'" in error(refused)["message"]
    assert post(client, f"/runs/{draft.pk}/start", headers=bearer("operator", "operate")).json()["state"] == "queued"


def test_a_token_never_may_more_than_its_owner(
    people: dict[str, User], client: Client, bearer: Bearer, draft: Run
) -> None:
    with pytest.raises(UserError, match="does not include operate"):
        create_token(user=people["viewer"], name="x", scopes=["operate"])
    headers = bearer("operator", "operate")
    User.objects.filter(username="operator").update(role="viewer")
    assert post(client, f"/runs/{draft.pk}/start", headers=headers).status_code == 403


def test_expired_revoked_and_foreign_tokens_are_refused(people: dict[str, User], client: Client) -> None:
    token, secret = create_token(user=people["viewer"], name="x", scopes=["read"])
    headers = {"Authorization": f"Bearer {secret}"}
    assert secret not in str(list(type(token).objects.values()))  # only its digest is stored
    assert client.get("/api/v1/runs", headers=headers).status_code == 200
    type(token).objects.update(expires_at="2020-01-01T00:00Z")
    assert client.get("/api/v1/runs", headers=headers).status_code == 401
    type(token).objects.update(expires_at="2099-01-01T00:00Z")
    revoke_token(token=token, by=people["viewer"])
    assert client.get("/api/v1/runs", headers=headers).status_code == 401
    assert client.get("/api/v1/runs", headers={"Authorization": "Bearer oc_guess"}).status_code == 401


def test_a_session_needs_the_csrf_token(people: dict[str, User], draft: Run) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["operator"])
    response = post(client, f"/runs/{draft.pk}/start")
    assert response.status_code == 403 and error(response)["code"] == "csrf"
    # A token carries no cookie, so it needs none.
    _, secret = create_token(user=people["operator"], name="x", scopes=["operate"])
    assert (
        post(
            Client(enforce_csrf_checks=True), f"/runs/{draft.pk}/start", headers={"Authorization": f"Bearer {secret}"}
        ).status_code
        == 200
    )


def test_tokens_are_made_by_people_not_by_tokens(people: dict[str, User], client: Client, bearer: Bearer) -> None:
    body = {"name": "ci", "scopes": ["read"]}
    assert post(client, "/tokens", body, headers=bearer("admin", "admin")).status_code == 401
    assert client.login(username="operator", password=PASSWORD)
    made = post(client, "/tokens", body)
    assert made.status_code == 201 and made.json()["secret"].startswith(made.json()["prefix"])
    listed = client.get("/api/v1/tokens").json()
    assert [t["name"] for t in listed] == ["ci"] and "secret" not in listed[0]
    assert client.delete(f"/api/v1/tokens/{made.json()['id']}").json()["revoked_at"]
    assert AuditEntry.objects.filter(action="token.revoke").exists()


def test_a_run_by_the_api(client: Client, bearer: Bearer, draft: Run) -> None:
    headers = bearer("operator", "operate")
    made = post(client, "/runs?start=true", CONFIG, headers=headers)
    assert made.status_code == 201
    run = made.json()
    assert (run["state"], run["steps_total"], run["policy_in"], run["created_by"]) == ("queued", 2, "base", "operator")
    assert [t["to_state"] for t in run["transitions"]] == ["draft", "queued"]
    assert post(client, f"/runs/{run['id']}/pause", headers=headers).json()["state"] == "paused"
    assert post(client, f"/runs/{run['id']}/resume", headers=headers).json()["state"] == "queued"
    assert post(client, f"/runs/{run['id']}/stop", headers=headers).json()["state"] == "cancelled"
    again = post(client, f"/runs/{run['id']}/start", headers=headers)
    assert again.status_code == 409 and "cancelled and cannot become queued" in error(again)["message"]
    assert list(
        AuditEntry.objects.filter(actor__username="operator", action__startswith="run.").values_list(
            "action", flat=True
        )
    ) == [
        "run.cancelled",
        "run.queued",
        "run.paused",
        "run.queued",
        "run.create",
    ]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"stage": {"kind": "rl", "steps": 0}}, "stage.steps", "greater than 0"),
        ({"stage": {"kind": "rl", "nonsense": 1}}, "stage.nonsense", "not permitted"),
        ({"stage": {"kind": "dpo"}}, "stage", "does not match"),
        ({"policy": "gone"}, "policy", "there is no policy 'gone'; there are: base"),
        ({"policy": "base@77"}, "policy", "no weights on disk"),
        ({"stage": {**CONFIG["stage"], "suite": "gone"}}, "stage.suite", "there are: train"),
        ({"stage": {**CONFIG["stage"], "steps": 50}}, "stage.suite", "each prompt is used once"),
        ({"name": ""}, "name", "start with a letter or digit"),
        ({"stage": {"kind": "midtrain", "codebase": "gone"}}, "stage.codebase", "clone the repository there"),
    ],
)
def test_a_wrong_setting_names_field_and_remedy(
    client: Client, bearer: Bearer, draft: Run, change: dict[str, Any], field: str, words: str
) -> None:
    for path in ("/runs/validate", "/runs"):
        response = post(client, path, {**CONFIG, **change}, headers=bearer("operator", "operate"))
        assert response.status_code == 422
        found = error(response)
        assert found["field"] == field and words in found["message"] and field in found["fields"], found
    assert Run.objects.count() == 1


def test_a_right_setting_comes_back_whole(client: Client, bearer: Bearer, draft: Run) -> None:
    body = {
        "name": "x",
        "stage": {"kind": "rl", "steps": 2, "groups_per_step": 2, "max_in_flight_groups": 4, "eval_suite": None},
    }
    found = post(client, "/runs/validate", body, headers=bearer("viewer")).json()
    assert found["ok"] and found["config"]["stage"]["group_size"] == 8
    assert any("toy" in warning for warning in found["warnings"])
    assert client.get("/api/v1/runs/presets", headers=bearer("viewer")).json()[0]["key"] == "real-small"


def test_metrics_events_and_pages(client: Client, bearer: Bearer, filled: Run) -> None:
    headers = bearer("viewer")
    base = f"/api/v1/runs/{filled.pk}"
    found = client.get(f"{base}/metrics?name=reward/mean&buckets=5", headers=headers).json()
    assert found["names"] == ["reward/mean"] and len(found["series"]["reward/mean"]) == 3  # 8 steps wide
    assert found["series"]["reward/mean"][-1]["value"] == 2.0
    assert client.get(f"{base}/events", headers=headers).json()[0]["message"] == "hello"
    detail = client.get(base, headers=headers).json()
    assert detail["rollouts"] == {"dispatched": 8, "passed": 4, "failed": 4, "infra_error": 0, "open": 0}
    first = client.get(f"/api/v1/rollouts?run={filled.pk}&limit=5", headers=headers).json()
    rest = client.get(f"/api/v1/rollouts?run={filled.pk}&limit=5&before={first['next']}", headers=headers).json()
    ids = [r["id"] for r in first["items"] + rest["items"]]
    assert len(set(ids)) == 8 and ids == sorted(ids, reverse=True) and rest["next"] is None
    assert len(client.get("/api/v1/rollouts?verdict=passed", headers=headers).json()["items"]) == 4


def test_a_trajectory_is_paged_and_tokens_are_on_demand(client: Client, bearer: Bearer, filled: Run) -> None:
    headers = bearer("viewer")
    rollout = client.get("/api/v1/rollouts?verdict=passed&limit=1", headers=headers).json()["items"][0]
    found = client.get(f"/api/v1/rollouts/{rollout['id']}/trajectory", headers=headers).json()
    assert found["report"]["verdict"] == "passed" and found["segments"] == [] and found["next"] is None
    group = client.get(f"/api/v1/groups/{rollout['group_id']}", headers=headers).json()
    assert [r["sample"] for r in group["rollouts"]] == [0, 1] and group["passed"] == 1


def test_an_open_rollout_has_no_trajectory_yet(client: Client, bearer: Bearer, running: Run) -> None:
    rollouts.pump(run_id=running.pk)
    pk = client.get("/api/v1/rollouts", headers=bearer("viewer")).json()["items"][0]["id"]
    response = client.get(f"/api/v1/rollouts/{pk}/trajectory", headers=bearer("viewer"))
    assert response.status_code == 404 and "dispatched" in error(response)["message"]


def test_a_lost_blob_is_said(client: Client, bearer: Bearer, filled: Run) -> None:
    from composer_web.core.artifacts import artifacts

    rollout = client.get("/api/v1/rollouts?limit=1", headers=bearer("viewer")).json()["items"][0]
    artifacts().remove_tree(f"groups/{rollout['group_id']}")
    response = client.get(f"/api/v1/rollouts/{rollout['id']}/trajectory", headers=bearer("viewer"))
    assert response.status_code == 503 and "is not in" in error(response)["message"]


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/runs/999", 404, ""),
        ("/tasks/none", 404, ""),
        ("/suites/none", 404, ""),
        ("/policies/none", 404, ""),
        ("/evaluations/9", 404, ""),
        ("/environments/none", 404, ""),
        ("/groups/9", 404, ""),
        ("/rollouts/9", 404, ""),
        ("/runs?limit=0", 422, "limit"),
        ("/runs?state=flying", 422, "state"),
        ("/rollouts?verdict=maybe", 422, "verdict"),
        ("/rollouts?colour=red", 422, "colour"),
        ("/runs/x", 422, "run_id"),
    ],
)
def test_a_wrong_address_or_filter(client: Client, bearer: Bearer, path: str, status: int, field: str) -> None:
    response = client.get(f"/api/v1{path}", headers=bearer("viewer"))
    assert response.status_code == status and error(response)["field"] == field


def test_hidden_tests_are_for_reviewers(client: Client, bearer: Bearer, draft: Run) -> None:
    slug = client.get("/api/v1/tasks?limit=1", headers=bearer("viewer")).json()["items"][0]["slug"]
    assert client.get(f"/api/v1/tasks/{slug}", headers=bearer("viewer")).json()["spec"] is None
    assert client.get(f"/api/v1/tasks/{slug}", headers=bearer("reviewer", "review")).json()["spec"]["gold"]
    narrow = client.get(f"/api/v1/tasks/{slug}", headers=bearer("admin", "read"))
    assert narrow.json()["spec"] is None, "a token that only reads has the rights of a viewer, whoever made it"


def test_a_suite_by_the_api_is_validated_and_frozen_once_used(
    client: Client, bearer: Bearer, make_suite: Callable[..., Suite], running: Run
) -> None:
    specs = [
        m.task_version.spec for m in Suite.objects.get(name="train").memberships.select_related("task_version")[:3]
    ]
    headers = bearer("reviewer", "review")
    made = post(client, "/suites", {"name": "mine", "tasks": specs}, headers=headers)
    assert made.status_code == 201 and made.json()["task_count"] == 3
    assert [
        m["position"] for m in client.get("/api/v1/suites/mine/tasks?limit=2", headers=headers).json()["items"]
    ] == [0, 1]
    broken = {**specs[0], "environment": {"kind": "inline", "files": {"../../etc/passwd": "x"}}}
    assert post(client, "/suites", {"name": "bad", "tasks": [broken]}, headers=headers).status_code == 422
    rollouts.pump(run_id=running.pk)
    changed = post(client, "/suites", {"name": "train", "tasks": specs[:1]}, headers=headers)
    assert changed.status_code == 409 and "has been used" in error(changed)["message"]


def test_an_evaluation_by_the_api(client: Client, bearer: Bearer, draft: Run) -> None:
    headers = bearer("operator", "operate")
    made = post(client, "/evaluations", {"policy": "base", "suite": "train", "tasks": 3, "samples": 2}, headers=headers)
    assert made.status_code == 201 and made.json()["state"] == "pending"
    assert post(client, f"/evaluations/{made.json()['id']}/cancel", headers=headers).json()["state"] == "cancelled"
    assert error(post(client, f"/evaluations/{made.json()['id']}/cancel", headers=headers))["code"] == "conflict"
    assert error(post(client, "/evaluations", {"policy": "no", "suite": "train"}, headers=headers))["field"] == "policy"


def test_an_unknown_package_names_the_known_ones(client: Client, bearer: Bearer) -> None:
    response = post(client, "/environments", {"package": "leftpad"}, headers=bearer("operator", "operate"))
    assert response.status_code == 422 and "there are:" in error(response)["message"]


# Queries of each list, log-in included. A change here is a decision: a list must not ask once a row.
QUERIES = {
    "/runs": 2,
    "/rollouts": 2,
    "/groups": 2,
    "/tasks": 2,
    "/suites": 2,
    "/policies": 2,
    "/evaluations": 2,
    "/environments": 2,
}


@pytest.mark.parametrize("path", QUERIES)
def test_a_list_takes_a_fixed_number_of_queries(client: Client, bearer: Bearer, filled: Run, path: str) -> None:
    headers = bearer("viewer")
    client.get(f"/api/v1{path}", headers=headers)
    with CaptureQueriesContext(
        connection,
    ) as seen:
        assert client.get(f"/api/v1{path}", headers=headers).status_code == 200
    assert len(seen) == QUERIES[path], [q["sql"][:120] for q in seen.captured_queries]


def test_a_policys_lineage_and_checkpoints(client: Client, bearer: Bearer, running: Run) -> None:
    child = client.get(f"/api/v1/policies/run-{running.pk}", headers=bearer("viewer")).json()
    assert (child["parent"], child["lineage"], child["run_id"]) == ("base", ["base", f"run-{running.pk}"], running.pk)
    base = client.get("/api/v1/policies/base", headers=bearer("viewer")).json()
    assert [c["kind"] for c in base["checkpoints"]] == ["base"] and base["architecture"]["parameters"] == 4
