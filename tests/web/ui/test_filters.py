"""Filters are applied or refused: no list and no file ignores one that it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.errors import UserError
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.exports.exported import TABLES
from composer_web.ui.filters import WrongFilter

pytestmark = pytest.mark.django_db
LISTS = {
    "runs": "state",
    "rollouts": "verdict",
    "findings": "severity",
    "tasks": "category",
    "evaluations": "phase",
    "alerts": "kind",
    "audit": "via",
    "gateway/sessions": "canary",
}
"""List of the API, with one of its filters that takes a choice."""
PAGES = {
    "/runs/": "state",
    "/rollouts/": "verdict",
    "/findings/": "severity",
    "/tasks/": "category",
    "/evaluations/": "phase",
    "/alerts/": "kind",
    "/audit/": "via",
    "/gateway/sessions/": "canary",
    "/tasks/review/": "category",
}
Bearer = Callable[..., dict[str, str]]


@pytest.mark.parametrize("what", TABLES)
@pytest.mark.parametrize("name", ["verdit", "nonsense", "format"])
def test_an_export_with_a_filter_that_does_not_exist_is_refused(what: str, name: str, people: dict[str, User]) -> None:
    with pytest.raises(WrongFilter, match=f"there is no filter '{name}'; there are: ") as refused:
        exports.ask(owner=people["admin"], format="jsonl", query=f"page=2&{name}=x", what=what)
    assert refused.value.field == name
    assert not Export.objects.exists()


@pytest.mark.parametrize(
    ("what", "query", "field"),
    [
        ("rollouts", "verdict=fail", "verdict"),
        ("rollouts", "verdict=passed&verdict=failed", "verdict"),
        ("rollouts", "reward_min=much", "reward_min"),
        ("rollouts", f"task={'x' * 201}", "task"),
        ("tasks", "difficulty=impossible", "difficulty"),
        ("runs", "since=yesterday", "since"),
        ("metrics", "run=999999", "run"),
        ("metrics", "", "run"),
    ],
)
def test_an_export_with_a_value_that_a_filter_does_not_take_is_refused(
    what: str, query: str, field: str, people: dict[str, User]
) -> None:
    with pytest.raises(UserError) as refused:
        exports.ask(owner=people["admin"], format="jsonl", query=query, what=what)
    assert refused.value.field == field and field in refused.value.message
    assert not Export.objects.exists()


def test_what_an_address_holds_for_its_page_alone_is_left_out(people: dict[str, User]) -> None:
    made = exports.ask(owner=people["admin"], format="jsonl", query="?page=2&sort=-id&cols=id,name&verdict=failed&run=")
    assert made.query == "verdict=failed&sort=-id", "the order is kept for the link back to the list"


@pytest.mark.parametrize(("name", "choice"), LISTS.items())
def test_a_list_of_the_api_refuses_what_it_does_not_know(
    client: Client, bearer: Bearer, name: str, choice: str
) -> None:
    headers = bearer("admin", "admin")
    for query, field in (({"verdit": "failed"}, "verdit"), ({choice: "nope"}, choice), ({choice: ["a", "b"]}, choice)):
        answer = client.get(f"/api/v1/{name}", query, headers=headers)
        assert answer.status_code == 422, (name, query, answer.content)
        assert answer.json()["error"]["field"] == field


@pytest.mark.parametrize(("path", "choice"), PAGES.items())
def test_a_page_refuses_what_it_does_not_know(client: Client, people: dict[str, User], path: str, choice: str) -> None:
    client.force_login(people["admin"])
    for query, field in (({"verdit": "failed"}, "verdit"), ({choice: "nope"}, choice)):
        answer = client.get(path, query)
        assert answer.status_code == 422, (path, query, answer.status_code)
        assert f"<code>{field}</code>" in answer.content.decode()
    assert client.get(path, {choice: "", "page": "1", "sort": "x"}).status_code == 200


def test_the_api_of_exports_names_the_filter(client: Client, bearer: Bearer) -> None:
    body: dict[str, Any] = {"what": "rollouts", "query": "verdit=failed"}
    answer = client.post("/api/v1/exports", body, content_type="application/json", headers=bearer("viewer", "read"))
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "verdit")
