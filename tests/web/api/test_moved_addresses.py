"""Addresses of release 0.1 lead to the new ones, with their query and method."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from composer_web.accounts.models import User


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/evals/", "/evaluations/"),
        ("/evals/releases/?suite=train", "/evaluations/releases/?suite=train"),
        ("/sessions/7/", "/gateway/sessions/7/"),
        ("/sessions/7/download.jsonl", "/gateway/sessions/7/download.jsonl"),
        ("/sessions/settings/", "/gateway/settings/"),
        ("/evals//elsewhere.example/", "/evaluations//elsewhere.example/"),
    ],
)
def test_an_old_address_leads_to_the_new_one(old: str, new: str) -> None:
    for answer in (Client().get(old), Client().post(old)):
        assert (answer.status_code, answer["Location"]) == (308, new)


@pytest.mark.parametrize(
    ("former", "table"), [("/api/v1/runs/views", "runs"), ("/api/v1/rollouts/queries", "rollouts")]
)
def test_views_of_one_list_answer_at_their_former_address(
    people: dict[str, User], client: Client, former: str, table: str
) -> None:
    client.force_login(people["operator"])
    body = {"name": "slow", "query": "sort=turns", "shared": False}
    made = client.post(former, json.dumps(body), content_type="application/json")
    assert made.status_code == 201 and made.json()["table"] == table
    other = {"table": "tasks", **body}
    assert client.post("/api/v1/views", json.dumps(other), content_type="application/json").status_code == 201
    assert [view["name"] for view in client.get(former).json()] == ["slow"]
    assert client.get(f"{former}?tag=x").status_code == 422
    assert client.delete(f"{former}/{made.json()['id']}").status_code == 204
    assert client.get(former).json() == []
    assert client.get("/api/v1/openapi.json").json()["paths"][former]["get"]["deprecated"] is True
