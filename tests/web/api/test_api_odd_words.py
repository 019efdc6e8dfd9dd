"""What JSON and addresses can hold and no database: halves of characters, NUL, numbers without end, thousands of fields.

Each is put into every place of a body that is right otherwise; the answer is never the server's fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as drawing
from schemathesis import APIOperation, Case, GenerationMode

from tests.browser import seed as small
from tests.web.api import test_api_properties
from tests.web.api.test_api_properties import FOR_CLIENTS, OPERATIONS, existing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
world, db, there = test_api_properties.world, test_api_properties.db, test_api_properties.there

ODD: dict[type, tuple[Any, ...]] = {
    str: ("\ud800", "a\x00b", "x" * 20_000, "&a" * 2000),
    int: (10**30, -(10**30)),
    float: (1e308, -1e308),
}
"""Instead of a value of this type."""
MAX = 12
"""Places of one body that are tried by themselves."""
WITH_BODY = [label for label, found in OPERATIONS.items() if found.body and not label.endswith(FOR_CLIENTS)]


@pytest.fixture
def admin(world: small.World, db: None) -> Client:
    made = Client(raise_request_exception=False)
    made.force_login(world.people["admin"])
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], type]]:
    """Every value of a document that has an odd sister, by its path."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from places(one, (*path, name))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from places(one, (*path, index))
    elif type(value) in ODD:
        yield path, type(value)


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another value at one place."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = put(document[path[0]], path[1:], value)
    return copy


def example(operation: APIOperation, there: dict[str, Any]) -> Case:
    """A request as the description wants it, to something that exists."""
    drawn: list[Case] = []

    @seed(3)
    @drawing(
        max_examples=1, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(GenerationMode.POSITIVE, path_parameters=existing(operation, there) or None))
    def draw(case: Case) -> None:
        drawn.append(case)

    draw()
    return drawn[0]


@pytest.mark.parametrize("label", WITH_BODY)
def test_no_odd_word_of_a_body_breaks_it(label: str, admin: Client, there: dict[str, Any]) -> None:
    operation = OPERATIONS[label]
    case = example(operation, there)
    if not isinstance(case.body, dict | list):
        pytest.skip("its body is no JSON document")
    bodies = [put(case.body, path, odd) for path, kind in list(places(case.body))[:MAX] for odd in ODD[kind]]
    if isinstance(case.body, dict):
        bodies += [{**case.body, "\ud800": 1}, {**case.body, "a\x00b": "a\x00b"}]
    wrong = []
    for body in bodies:
        with transaction.atomic():
            answer = admin.generic(
                operation.method.upper(), case.formatted_path, json.dumps(body), content_type="application/json"
            )
            transaction.set_rollback(True)
        if answer.status_code >= 500:
            wrong.append(f"{answer.status_code} for {json.dumps(body)[:300]}")
        elif answer.status_code >= 400:
            assert answer.json()["error"]["message"], answer.content
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "query",
    ["before=x", "before=" + "9" * 40, "before=-1", "limit=0", "limit=" + "9" * 5000, "limit=-1", "a=1&" * 1100],
)
def test_no_odd_page_of_a_list_breaks_it(admin: Client, query: str) -> None:
    lists = [found for label, found in OPERATIONS.items() if label.startswith("GET") and not found.path_parameters]
    wrong = []
    for operation in lists:
        answer = admin.get(f"{operation.path}?{query}")
        if answer.status_code >= 500 and "health" not in operation.path:
            wrong.append(f"{operation.path}: {answer.status_code}")
        elif answer.status_code == 400:
            assert answer.json()["error"]["code"] == "invalid"
    assert not wrong, "\n".join(wrong)
    assert len(lists) > 30


def test_halves_of_characters_are_named(admin: Client) -> None:
    body = {"table": "runs", "name": "half \ud800", "query": "", "shared": False}
    answer = admin.post("/api/v1/views", json.dumps(body), content_type="application/json")
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "name"
    many = admin.post("/api/v1/exports", {"format": "csv", "query": "a&" * 4000}, content_type="application/json")
    assert many.status_code == 422
    assert many.json()["error"]["field"] == "query"
