"""Malformed HTTP is the client's fault: an answer in 4xx that says what is wrong, never a 500."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

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
    assert len(paths) == 4
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
