"""Malformed HTTP is the client's fault: an answer in 4xx that says what is wrong, never a 500."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.tasks.models import Suite
from sandbox.tasks.procedural import generate

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


def uploads() -> list[str]:
    """Every operation of the API that takes a form with a file."""
    from composer_web.api_root import api

    return [
        path
        for path, found in api.get_openapi_schema()["paths"].items()
        if "multipart/form-data" in found.get("post", {}).get("requestBody", {}).get("content", {})
    ]


def test_a_form_without_a_boundary(client: Client, bearer: Bearer) -> None:
    paths = uploads()
    assert len(paths) == 5
    client.raise_request_exception = False
    headers = bearer("admin", "admin")
    for path in paths:
        for kind in ("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=é"):
            answer = client.post(path, b"--x\r\n", content_type=kind, headers=headers)
            assert answer.status_code in (400, 422), (path, kind, answer.status_code, answer.content)
            assert answer.json()["error"]["message"]


def test_a_method_that_an_address_does_not_take(client: Client, bearer: Bearer) -> None:
    answer = client.put("/api/v1/health", headers=bearer("viewer", "read"))
    assert (answer.status_code, answer["Allow"]) == (405, "GET")
    assert answer.json()["error"]["code"] == "method_not_allowed"


def test_a_suite_of_several_megabytes_is_one_body(client: Client, bearer: Bearer) -> None:
    """Bundles of real packages are large: Django's own limit is 2.5 MB."""
    bundles = [generate(number, "train").model_dump(mode="json") for number in range(7, 10)]
    for bundle in bundles:
        bundle["environment"]["files"]["notes.txt"] = "a line\n" * 140_000
    body = {"name": "large", "purpose": "train", "tasks": bundles}
    answer = client.post("/api/v1/suites", body, content_type="application/json", headers=bearer("admin", "admin"))
    assert answer.status_code == 201, answer.content
    assert Suite.objects.get(name="large").memberships.count() == 3


def test_a_body_beyond_the_limit_is_refused_with_the_limit(client: Client, bearer: Bearer) -> None:
    body = b'{"name": "' + b"x" * (32 * 2**20) + b'"}'
    answer = client.post("/api/v1/suites", body, content_type="application/json", headers=bearer("admin", "admin"))
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert (error["code"], error["field"]) == ("too_large", "body")
    assert "32 MiB" in error["message"] and "import" in error["message"]
