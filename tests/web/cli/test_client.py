"""The client over a socket, and its retries, without a generated method in between."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
from django.core.wsgi import get_wsgi_application

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token
from composer_web.rollouts.exports import jobs as exports
from composer_web.runs.models import Run
from opencomposer import ApiError, Client, Unreachable


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(draft: Run) -> Iterator[str]:
    """The product behind a socket. One thread answers, so that the test's rows need no second connection's sight."""
    server = make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(30)
    server.server_close()


@pytest.fixture
def client(address: str, people: dict[str, User]) -> Iterator[Client]:
    _, secret = create_token(user=people["operator"], name="client", scopes=["operate"])
    with Client(address, secret) as client:
        yield client


@pytest.mark.django_db(transaction=True)
def test_an_operation_of_each_kind(client: Client, draft: Run, tmp_path: Path) -> None:
    # a list, in pages as they are consumed
    text = client.get("/runs/{run_id}/config", {"format": "yaml"}, run_id=draft.pk)["text"]
    config = client.post("/runs/read", {"text": text})["config"]
    more = [client.post("/runs", {**config, "name": f"run {number}"})["id"] for number in range(3)]
    assert [run["id"] for run in client.pages("/runs")] == [*reversed(more), draft.pk]
    assert [run["id"] for run in client.pages("/runs", limit=2, params={"state": "draft"})] == [more[2], more[1]]
    # a detail, changed, and an action
    assert client.patch("/runs/{run_id}", {"tags": ["a"]}, run_id=draft.pk)["tags"] == ["a"]
    assert client.post("/runs/{run_id}/{action}", run_id=draft.pk, action="start")["state"] == "queued"
    # an answer without content
    view = client.post("/views", {"table": "runs", "name": "mine", "query": "state=queued"})
    assert client.delete("/views/{view_id}", view_id=view["id"]) is None
    assert client.get("/views") == []
    # a download, an upload of it, and a file that a worker wrote
    bundle = tmp_path / "suite.zip"
    with bundle.open("wb") as file:
        client.download("/suites/{name}/export/{format}", file, name="train", format="harbor")
    query = {"purpose": "train", "format": "harbor"}
    assert client.post("/suites/{name}/import", params=query, files={"file": bundle}, name="again")["tasks"] == 12
    asked = client.post("/exports", {"what": "runs", "query": "state=queued", "format": "csv"})
    exports.write(asked["id"])
    held = io.BytesIO()
    client.download("/exports/{export_id}/file", held, export_id=asked["id"])
    assert held.getvalue().decode().splitlines()[1].startswith(f"{draft.pk},")


@pytest.mark.django_db(transaction=True)
def test_refusals_are_one_typed_error(client: Client, draft: Run) -> None:
    config = {"name": "x", "stage": {"kind": "rl", "steps": "nine"}}
    for call, status, code, field in (
        (lambda: client.get("/runs/{run_id}", run_id=10**6), 404, "not_found", ""),
        (lambda: client.post("/runs/{run_id}/{action}", run_id=draft.pk, action="pause"), 409, "conflict", "state"),
        (lambda: client.post("/runs/validate", config), 422, "invalid", "stage.steps"),
        (lambda: client.get("/people"), 403, "forbidden", ""),
        (lambda: client.download("/exports/{export_id}/file", io.BytesIO(), export_id=10**6), 404, "not_found", ""),
    ):
        with pytest.raises(ApiError) as refused:
            call()
        error = refused.value
        assert (error.http_status, error.code, error.field) == (status, code, field) and error.message
        assert not field or field in error.fields


def answering(*statuses: int) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    """A server that answers with these, then with 200; and what it was asked."""
    left, seen = list(statuses), []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        status = left.pop(0) if left else 200
        if status == 0:
            raise httpx.ReadError("broken off")
        return httpx.Response(status, json={"ok": True})

    return httpx.MockTransport(answer), seen


def test_reads_are_retried_and_changes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opencomposer.client.RETRY_WAITS", (0.0, 0.0))
    transport, seen = answering(503, 0)
    assert Client("http://127.0.0.1", "x", transport=transport).get("/health/live") == {"ok": True}
    assert len(seen) == 3
    transport, seen = answering(503, 503, 503)
    with pytest.raises(ApiError, match="503"):
        Client("http://127.0.0.1", "x", transport=transport).get("/health/live")
    for status, refused in ((503, ApiError), (0, Unreachable)):
        transport, seen = answering(status)
        with pytest.raises(refused):
            Client("http://127.0.0.1", "x", transport=transport).post("/runs/{run_id}/start", run_id=1)
        assert len(seen) == 1  # it may have been done


def test_parts_of_a_path_are_quoted_and_null_is_sent() -> None:
    transport, seen = answering()
    client = Client("http://127.0.0.1", "x", transport=transport, project="ours")
    client.get("/tasks/{slug}", {"q": None}, slug="a/b c{}")
    assert seen[0].url.raw_path == b"/api/v1/tasks/a%2Fb%20c%7B%7D?project=ours"
    client.patch("/x", {"one": None})
    assert seen[1].content == b'{"one":null}'
