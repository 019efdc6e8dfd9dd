"""Command lines run against this process's own API, and each request compared with the API's description."""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.test import Client as Web

from composer_web.api_root import api
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from opencomposer import Client
from opencomposer.app import main

Cli = Callable[..., tuple[int, str]]


@functools.cache
def description() -> dict[str, Any]:
    """The OpenAPI description, as a program reads it."""
    found: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema()))
    return found


@functools.cache
def described_paths() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Each path of the description as a pattern, the more specific ones first."""
    paths = sorted(description()["paths"], key=lambda path: (path.count("{"), path))
    return tuple((re.compile(re.sub(r"{\w+}", "[^/]+", path) + "$"), path) for path in paths)


def described(request: httpx.Request) -> None:
    """Fails for a path, query parameter or body field that the API does not describe."""
    path = request.url.raw_path.decode().partition("?")[0]
    found = next((stored for pattern, stored in described_paths() if pattern.match(path)), None)
    assert found is not None, path
    operation = description()["paths"][found][request.method.lower()]
    known = {one["name"] for one in operation.get("parameters", ())}
    assert set(request.url.params) <= known | {"project"}, (found, dict(request.url.params))
    if request.headers.get("Content-Type") == "application/json":
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        fields = description()["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], body)
        sent = json.loads(request.content)
        assert not fields.get("properties") or set(sent) <= set(fields["properties"]), (found, sent)


def transport(request: httpx.Request) -> httpx.Response:
    """Into this process's own API instead of over a socket; exports that wait for a worker are written at once."""
    described(request)
    for asked in Export.objects.filter(state="waiting"):
        exports.write(asked.pk)
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
    path = request.url.raw_path.decode()
    kind = request.headers.get("Content-Type", "application/json")
    answer = Web().generic(request.method, path, request.content, content_type=kind, **headers)
    content = answer.getvalue()
    return httpx.Response(answer.status_code, content=content, headers=dict(answer.items()))


def connected(token: str) -> Client:
    return Client("http://127.0.0.1", token, transport=httpx.MockTransport(transport))


def command_line(token: str) -> Cli:
    """Runs a command line with this token: (exit status, standard output)."""

    def call(*words: str) -> tuple[int, str]:
        out = io.StringIO()
        return main(words, client=connected(token), out=out), out.getvalue()

    return call


def data(answer: tuple[int, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


def error(captured: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(captured.readouterr().err.splitlines()[-1])["error"]
    return found
