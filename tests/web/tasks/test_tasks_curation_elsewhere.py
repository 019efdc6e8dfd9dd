"""Curation of tasks by API and command line: the same as on the pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.tasks.models import Suite, Task
from tests.web import pool

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]
tasks, other = pool.tasks, pool.other


def test_the_api_does_the_same(tasks: list[Task], people: dict[str, User], bearer: Bearer) -> None:
    client, slug = Client(), tasks[0].slug
    read, review, operate = bearer("viewer"), bearer("reviewer", "review"), bearer("operator", "operate")

    def post(path: str, body: Any, headers: dict[str, str]) -> Any:
        return client.post(
            f"/api/v1/curation{path}", json.dumps(body), content_type="application/json", headers=headers
        )

    assert client.get("/api/v1/curation/facets").status_code == 401
    assert post(f"/tasks/{slug}/reviews", {"decision": "accept"}, read).status_code == 403
    assert post("/bulk", {"action": "tag", "value": "x", "tasks": [slug]}, review).status_code == 403
    assert client.get("/api/v1/curation/next?source=procedural", headers=review).json() == {
        "task": slug,
        "waiting": 6,
    }
    assert post("/suites", {"name": "b", "purpose": "benchmark", "reviewed": True}, review).status_code == 201
    made = post(f"/tasks/{slug}/reviews", {"decision": "accept", "into": "b"}, review).json()
    assert (made["state"], made["mine"], len(made["opinions"])) == ("one", "accept", 1)
    assert client.get(f"/api/v1/curation/tasks/{slug}/reviews", headers=operate).json()["opinions"] is None
    assert post(f"/tasks/{slug}/reviews", {"decision": "accept", "into": "b"}, operate).json()["state"] == "admitted"
    assert Suite.objects.get(name="b").versions.count() == 1
    batch = post("/bulk", {"action": "tag", "value": "x", "tasks": [slug]}, operate).json()
    assert batch["changed"] == 1
    assert client.get("/api/v1/tasks?tag=x&mine=accept", headers=review).json()["items"][0]["tags"] == ["x"]
    assert post(f"/undo/{batch['id']}", {}, review).status_code == 422
    assert post(f"/undo/{batch['id']}", {}, operate).json()["changed"] == 1
    assert post("/bulk", {"action": "tag", "value": "x", "tasks": ["none"]}, operate).status_code == 404
    assert post(f"/tasks/{slug}/instruction", {"instruction": "Anew"}, review).json()["version"] == 2
    parts = client.get(f"/api/v1/curation/tasks/{slug}/compare?before=1&after=2", headers=read).json()
    assert [part["name"] for part in parts] == ["Instruction"]
    changes = client.get("/api/v1/curation/changes", headers=read).json()["items"]
    assert [change["field"] for change in changes] == ["instruction", "tags", "tags", "suite"]
    assert client.get("/api/v1/curation/disagreements", headers=read).json() == []
    assert client.get("/api/v1/curation/facets?colour=red", headers=read).status_code == 422
