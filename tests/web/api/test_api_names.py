"""Every operation of the API that reads refuses a query parameter that it does not declare, and no other."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.api_root import api
from tests.web.addresses import KEY

SCHEMA = api.get_openapi_schema()
READING = [(route, methods["get"]) for route, methods in SCHEMA["paths"].items() if "get" in methods]


def asked(route: str, operation: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Path and required query parameters of a question that is well formed."""
    query = {}
    for parameter in operation.get("parameters", ()):
        value = str(parameter["schema"].get("enum", ["1"])[0])
        if parameter["in"] == "path":
            route = route.replace(f"{{{parameter['name']}}}", value)
        elif parameter.get("required"):
            query[parameter["name"]] = value
    return KEY.sub("1", route), query


@pytest.fixture
def admin(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["admin"])
    return client


@pytest.mark.django_db
@pytest.mark.parametrize(("route", "operation"), READING, ids=[route for route, _ in READING])
def test_an_unknown_name_is_refused(route: str, operation: dict[str, Any], admin: Client) -> None:
    """Also where the object of the path does not exist: the question is wrong whatever there is."""
    path, query = asked(route, operation)
    answer = admin.get(path, {**query, "statee": "running"})
    assert answer.status_code == 422, answer.content
    error = answer.json()["error"]
    assert (error["code"], error["field"]) == ("invalid", "statee")
    assert "there is no filter 'statee'" in error["message"]


@pytest.mark.django_db
def test_every_declared_name_is_known(admin: Client) -> None:
    found = 0
    for route, operation in READING:
        path, query = asked(route, operation)
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query":
                answer = admin.get(path, {parameter["name"]: "1"} | query)
                assert b"there is no filter" not in answer.content, (route, parameter["name"])
                found += 1
    assert found > 50, "the description names them"


@pytest.mark.django_db
def test_the_project_is_known_everywhere_and_the_message_names_what_there_is(admin: Client) -> None:
    assert admin.get("/api/v1/policies", {"project": "default"}).status_code == 200
    error = admin.get("/api/v1/policies", {"q": "base"}).json()["error"]
    assert error["message"] == "there is no filter 'q'; there are: before, limit"
