"""The generated client: in step with the API's description, whole, and true against a server over a socket."""

from __future__ import annotations

import inspect
import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
from django.core.wsgi import get_wsgi_application

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token
from composer_web.rollouts import exports
from composer_web.runs.models import Run
from oc import models
from oc.client import ApiError, Client, Unreachable
from oc.transport import OMIT, plain
from scripts.client import answers, methods
from scripts.client.description import Description

STALE = "the API changed: run `make client` and commit oc/models/ and oc/api/"


@pytest.fixture(scope="module")
def description() -> Description:
    return Description.of_the_api()


def test_the_answers_are_in_step(description: Description) -> None:
    assert answers.digest(description) == models.DESCRIPTION, STALE


def test_the_methods_are_in_step(description: Description) -> None:
    made = {file.name: file.read_text() for file in methods.TARGET.glob("*.py")}
    assert methods.rendered(description) == made, STALE


def test_every_operation_has_a_method_of_its_own(description: Description) -> None:
    """With every parameter of the description by its name, and what it needs without a default."""
    client = Client("http://127.0.0.1", "x")
    names = [(one.noun, one.verb) for one in description.operations]
    stored = sum(len(one) for one in description.document["paths"].values())
    assert len(set(names)) == len(names) == stored
    for operation in description.operations:
        taken = inspect.signature(getattr(getattr(client, operation.noun), operation.verb)).parameters
        for one in operation.parameters:
            must = taken[one.name].default is inspect.Parameter.empty
            assert must == (one.required or one.place == "path"), (operation.noun, operation.verb, one.name)
    methods_ = {
        (noun, verb)
        for noun, held in vars(client).items()
        if noun != "transport"
        for verb, _ in inspect.getmembers(held, inspect.ismethod)
        if not verb.startswith("_")
    }
    assert methods_ == set(names)


BY_ADDRESS = {
    "tokens are made and revoked by sessions only": "tokens.create tokens.revoke",
    "a liveness probe asks without a token": "health.live",
    "what a page draws itself from": "curation.list_facets runs.write_text",
    "a template is asked for by its name, which the list has": "templates.get",
}
"""Operations without a command of their own, and why."""


def test_what_no_command_reaches_is_said(description: Description) -> None:
    source = "".join(file.read_text() for file in (methods.ROOT / "oc").glob("*.py"))
    reached = set(re.findall(r"client\.(\w+\.\w+)", source))
    left = {f"{one.noun}.{one.verb}" for one in description.operations} - reached
    words = [word for line in BY_ADDRESS.values() for word in line.split()]
    allowed = {name for name in left if name in words or f"{name.partition('.')[0]}." in words}
    assert left == allowed
    stale = [word for word in words if not any(name == word or name.startswith(word) for name in left)]
    assert not stale, "a command reaches these now"


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
    # a list, in pages as they are wanted
    config = client.runs.read_text(text=client.runs.get_config(draft.pk, format="yaml").text).config
    more = [client.runs.create({**config, "name": f"run {number}"}).id for number in range(3)]
    assert [run.id for run in client.runs.list()] == [*reversed(more), draft.pk]
    assert [run.id for run in client.runs.list(limit=1, before=more[-1], state="draft")] == [more[-2]]
    # a detail, changed: what is not named stays, and what is null is sent
    assert client.runs.label(draft.pk, tags=["a"], notes="why").tags == ["a"]
    assert client.runs.label(draft.pk, notes="because").tags == ["a"]
    found = client.runs.get(draft.pk)
    assert isinstance(found, models.RunDetail) and found.notes == "because"
    # made of a model, an action, and a removal
    stage = models.MidtrainConfig(kind="midtrain", steps=1)
    assert client.runs.validate(models.RunConfig(name="of a model", stage=stage)).ok
    assert client.runs.act(draft.pk, "start").state == "queued"
    view = client.runs.save_view(name="mine", query="state=queued")
    client.runs.delete_view(view.id)
    assert client.runs.list_views() == []
    # an upload, and a download that a worker wrote
    suite = next(client.suites.list(limit=1))
    bundle = tmp_path / "suite.zip"
    with bundle.open("wb") as file:
        client.suites.export(suite.name, "harbor", file)
    again = client.suites.import_suite("again", file=bundle, purpose="train")
    assert again.tasks == suite.task_count
    asked = client.exports.create(what="runs", query="state=queued", format="csv")
    exports.write(asked.id)
    held = io.BytesIO()
    client.exports.get_file(asked.id, held)
    assert held.getvalue().decode().splitlines()[1].startswith(f"{draft.pk},")


@pytest.mark.django_db(transaction=True)
def test_refusals_are_one_typed_error(client: Client, draft: Run) -> None:
    for call, status, code, field in (
        (lambda: client.runs.get(10**6), 404, "not_found", ""),
        (lambda: client.runs.act(draft.pk, "pause"), 409, "conflict", "state"),
        (
            lambda: client.runs.validate({"name": "x", "stage": {"kind": "rl", "steps": "nine"}}),
            422,
            "invalid",
            "stage.steps",
        ),
        (lambda: client.people.list(), 403, "forbidden", ""),
        (lambda: client.exports.get_file(10**6, io.BytesIO()), 404, "not_found", ""),
    ):
        with pytest.raises(ApiError) as refused:
            call()
        error = refused.value
        assert (error.status, error.code, error.field) == (status, code, field) and error.message
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


def test_looks_are_tried_again_and_changes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oc.transport.WAITS", (0.0, 0.0))
    transport, seen = answering(503, 0)
    assert Client("http://127.0.0.1", "x", transport=transport).health.live().ok
    assert len(seen) == 3
    transport, seen = answering(503, 503, 503)
    with pytest.raises(ApiError, match="503"):
        Client("http://127.0.0.1", "x", transport=transport).health.live()
    for status, refused in ((503, ApiError), (0, Unreachable)):
        transport, seen = answering(status)
        with pytest.raises(refused):
            Client("http://127.0.0.1", "x", transport=transport).runs.act(1, "start")
        assert len(seen) == 1  # it may have been done


def test_of_a_model_only_what_was_said_is_sent() -> None:
    stage = models.MidtrainConfig(kind="midtrain", steps=1)
    assert plain(models.RunConfig(name="x", stage=stage)) == {"name": "x", "stage": {"kind": "midtrain", "steps": 1}}
    transport, seen = answering()
    client = Client("http://127.0.0.1", "x", transport=transport)
    client.transport.send("PATCH", "/x", body={"one": plain(None)})
    assert seen[0].content == b'{"one":null}' and OMIT.name == "OMIT"
    client.transport.send("GET", "/tasks/a%2Fb%20c")
    assert seen[1].url.raw_path == b"/api/v1/tasks/a%2Fb%20c"
