"""A token that was found: replayed against another project of its owner, after it ended, and where no token belongs.

The owner administers the installation and both projects, so that nothing but the token stands between. Every operation of
the API's own description is tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from composer_web.accounts import url_resources
from composer_web.accounts.models import ApiToken, Membership, Project, User
from composer_web.accounts.projects import set_member
from composer_web.accounts.services import create_token, revoke_token
from composer_web.api_root import api
from composer_web.evals.models import Evaluation
from composer_web.gateway.errors import Unauthenticated
from composer_web.gateway.models import Session, SignalRow
from composer_web.gateway.serving.admission import authenticate
from composer_web.policies.models import Policy
from composer_web.review.models import Queue
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.models import Finding, Rollout
from composer_web.runs.models import Run, Sweep
from composer_web.tasks.models import Suite, Task
from tests.web.addresses import Address, operations, pages
from tests.web.api.test_every_address import OPEN_OPERATIONS, SECRET, ask, is_open, path_of, tried, world

__all__ = ["world"]  # fixture
pytestmark = [pytest.mark.integration, pytest.mark.django_db]
FOREIGN = (SECRET, "scale-train")
"""What only the other project's things are called."""


@pytest.fixture(scope="module")
def owner(world: dict[str, User]) -> User:
    """Admin of the installation, with a membership in `elsewhere`."""
    set_member(project=Project.objects.get(slug="elsewhere"), username="admin", role="admin", actor=None)
    return world["admin"]


def token(owner: User, *scopes: str, project: str = "elsewhere") -> tuple[ApiToken, Client]:
    """One of the project, and a client that sends it."""
    owner.__dict__.pop("placed", None)
    made, secret = create_token(user=owner, name="found", scopes=scopes or ["admin"], project=project)
    return made, Client(headers={"Authorization": f"Bearer {secret}"}, raise_request_exception=False)


def of_people() -> Iterator[Address]:
    """Operations that take a person's token; not the gateway's own, nor what is open to all."""
    for address in operations():
        if address.role is not None and not address.own and str(address) not in OPEN_OPERATIONS:
            yield address


# --- another project --------------------------------------------------------------------------------------------


def test_by_id_and_in_lists_it_finds_nothing_of_another_project(owner: User) -> None:
    _, replay = token(owner)
    wrong, walked = [], 0
    for address in of_people():
        status, text = tried(replay, address)
        walked += 1
        if address.objects and status != 404:
            wrong.append(f"{address}: {status}")
        if (
            url_resources.installation(address.route)
            and not url_resources.for_all(address.route)
            and status not in (401, 403)
        ):
            wrong.append(f"{address} is about the installation: {status}")
        wrong += [f"{address} tells of {word}" for word in FOREIGN if word in text]
    assert not wrong, "\n".join(wrong)
    assert walked > 150


def test_no_change_of_another_project_is_made(owner: User) -> None:
    """Deletions and changes with an empty body may fail for the body: these have one that fits."""
    _, replay = token(owner)
    run, task = Run.objects.earliest("pk"), Task.objects.earliest("pk")
    rollout, session = Rollout.objects.earliest("pk"), Session.objects.earliest("pk")
    before = [list(model.objects.order_by("pk").values()) for model in (Run, Task, Finding, Session, Membership)]
    for method, path, body in (
        ("post", f"/runs/{run.pk}/archive", {}),
        ("patch", f"/runs/{run.pk}", {"notes": "mine now"}),
        ("post", f"/rollouts/{rollout.pk}/forks", {"turn": 1}),
        ("post", "/curation/bulk", {"tasks": [task.slug], "action": "tag", "value": "mine"}),
        ("delete", f"/gateway/sessions/{session.pk}", None),
        ("post", "/gateway/erase", {"user": "ada"}),
        ("put", "/projects/default/members", {"username": "viewer", "role": "admin"}),
    ):
        with transaction.atomic():
            answer = replay.generic(
                method.upper(), f"/api/v1{path}", json.dumps(body) if body is not None else "", "application/json"
            )
            assert answer.status_code in (403, 404, 405, 422), (path, answer.status_code, answer.content)
            after = [list(model.objects.order_by("pk").values()) for model in (Run, Task, Finding, Session, Membership)]
            assert after == before, path
            transaction.set_rollback(True)


def theirs() -> dict[str, Any]:
    """What is elsewhere, by the words with which addresses and bodies name such things."""
    run, rollout = Run.objects.earliest("pk"), Rollout.objects.earliest("pk")
    version = Task.objects.earliest("pk").versions.earliest("pk")
    return {
        "run": run.pk,
        "run_id": run.pk,
        "parent": run.pk,
        "rollout": rollout.pk,
        "group": rollout.group_id,
        "evaluation": Evaluation.objects.earliest("pk").pk,
        "sweep": Sweep.objects.earliest("pk").pk,
        "task": Task.objects.earliest("pk").slug,
        "task_version": version.pk,
        "suite": Suite.objects.earliest("pk").name,
        "policy": Policy.objects.earliest("pk").name,
        "queue": Queue.objects.earliest("pk").name,
        "q": Task.objects.earliest("pk").slug,
        "finding": Finding.objects.earliest("pk").pk,
        "name": Suite.objects.earliest("pk").name,
    }


@pytest.mark.parametrize("most", [3, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_no_filter_of_a_list_reaches_into_another_project(owner: User, most: int) -> None:
    """Each query parameter of each list, with the ids and names of what is there; where its name does not say what it takes,
    with so many of them in turn."""
    _, replay = token(owner)
    known = theirs()
    values = sorted({str(value) for value in known.values()})
    wrong, asked = [], 0
    for path, found in api.get_openapi_schema()["paths"].items():
        if "get" not in found or "{" in path or path == "/api/v1/health/live":
            continue
        for parameter in found["get"].get("parameters", []):
            name = parameter["name"]
            if parameter["in"] != "query" or name in ("limit", "before", "project"):
                continue
            turn = [values[(asked + place) % len(values)] for place in range(min(most, len(values)))]
            for value in [str(known[name])] if name in known else turn:
                answer = replay.get(path, {name: value})
                asked += 1
                text = answer.getvalue().decode().replace(value, "")
                items = (
                    json.loads(answer.content).get("items", []) if answer.status_code == 200 and text[:1] == "{" else []
                )
                if answer.status_code >= 500 or (items and name in known) or any(word in text for word in FOREIGN):
                    wrong.append(f"{path}?{name}={value}: {answer.status_code} {text[:120]}")
        chosen = replay.get(path, {"project": "default"})
        if chosen.status_code not in (401, 403, 404) and not url_resources.for_all(path[1:]):
            wrong.append(f"{path}?project=default: {chosen.status_code}")
    assert not wrong, "\n".join(wrong)
    assert asked > 100


def test_no_body_names_what_another_project_has(owner: User) -> None:
    """Runs, sweeps, evaluations, suites, datasets, queues, exports of things that are elsewhere: refused, and nothing is made."""
    _, replay = token(owner)
    known = theirs()
    config = dict(Run.objects.filter(kind="rl").earliest("pk").config, name="stolen")
    for path, body in (
        ("/runs", config),
        ("/runs", {**config, "parent": known["run"]}),
        ("/sweeps", {"name": "stolen", "config": config, "fields": [["seed", [1, 2]]]}),
        ("/evaluations", {"policy": known["policy"], "suite": known["suite"]}),
        ("/exports", {"what": "metrics", "format": "jsonl", "query": f"run={known['run']}"}),
        ("/tasks/trajectories", {"name": "stolen", "rollout": known["rollout"]}),
    ):
        with transaction.atomic():
            answer = replay.post(f"/api/v1{path}", body, content_type="application/json")
            assert answer.status_code in (403, 404, 405, 422), (path, answer.status_code, answer.content[:300])
            assert not Run.objects.filter(name="stolen").exists() and not Sweep.objects.filter(name="stolen").exists()
            transaction.set_rollback(True)


def test_the_file_of_an_export_stays_in_its_project(
    owner: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "folder", lambda: tmp_path / "exports")
    _, here = token(owner, project="default")
    _, replay = token(owner)
    made = here.post("/api/v1/exports", {"what": "sessions"}, content_type="application/json").json()
    exports.write(made["id"])
    path = f"/api/v1/exports/{made['id']}"
    assert here.get(f"{path}/file").status_code == 200
    assert [replay.get(one).status_code for one in (path, f"{path}/file")] == [404, 404]
    assert replay.get("/api/v1/exports").json()["items"] == []
    asked = replay.post("/api/v1/exports", {"what": "sessions"}, content_type="application/json").json()
    exports.write(asked["id"])
    export = Export.objects.get(pk=asked["id"])
    assert (export.state, export.rows) == ("done", 0)


def test_a_client_of_the_gateway_in_one_project_changes_no_session_of_another(owner: User) -> None:
    session = Session.objects.earliest("pk")
    Session.objects.filter(pk=session.pk).update(owner=owner)
    _, replay = token(owner, "gateway")
    _, here = token(owner, "gateway", project="default")
    body = {"session": session.client_id, "signals": [{"id": "forged", "kind": "accept"}]}
    address = f"/api/v1/gateway/own-sessions/{session.client_id}"
    with transaction.atomic():
        assert replay.post("/api/v1/gateway/signals", body, content_type="application/json").status_code == 404
        assert replay.delete(address).status_code == 404
        assert (
            Session.objects.filter(pk=session.pk).exists() and not SignalRow.objects.filter(client_id="forged").exists()
        )
        assert here.post("/api/v1/gateway/signals", body, content_type="application/json").status_code == 200
        assert here.delete(address).status_code == 204
        transaction.set_rollback(True)


def test_numbers_of_the_installation_are_for_no_token_of_one_project(owner: User) -> None:
    _, bound = token(owner, "metrics")
    assert bound.get("/metrics").status_code == 403
    _, secret = create_token(user=owner, name="prometheus", scopes=["metrics"])
    assert Client().get("/metrics", headers={"Authorization": f"Bearer {secret}"}).status_code == 200


def at_the_gateway(client: Client) -> bool:
    """Whether it lets this token in. Asked directly: its addresses answer from threads that do not see this transaction."""
    try:
        return bool(authenticate(client.defaults["HTTP_AUTHORIZATION"]))
    except Unauthenticated:
        return False


# --- after its end, and elsewhere -------------------------------------------------------------------------------


def revoked(made: ApiToken) -> None:
    revoke_token(token=made, by=made.user)


def expired(made: ApiToken) -> None:
    ApiToken.objects.filter(pk=made.pk).update(expires_at=timezone.now() - timedelta(seconds=1))


def disabled(made: ApiToken) -> None:
    User.objects.filter(pk=made.user_id).update(is_active=False)


@pytest.mark.parametrize("end", [revoked, expired, disabled])
def test_a_token_that_ended_opens_nothing(owner: User, end: Any) -> None:
    with transaction.atomic():
        made, ended = token(owner, "admin", "gateway", "metrics", project="default")
        assert ended.get("/api/v1/runs").json()["items"] and at_the_gateway(ended), "it was good"
        end(made)
        wrong = [f"{address}: {status}" for address in operations() if not is_open(address)
                 for status, _ in [ask(ended, address, path_of(address))] if status != 401]  # fmt: skip
        assert not wrong, "\n".join(wrong)
        assert not at_the_gateway(ended) and ended.get("/metrics").status_code == 401
        transaction.set_rollback(True)


def test_a_token_of_a_project_that_its_owner_left_opens_nothing(world: dict[str, User]) -> None:
    person = world["member-operator"]
    with transaction.atomic():
        _, left = token(person, "operate", "gateway", project="default")
        assert left.get("/api/v1/runs").json()["items"], "it was good"
        assert at_the_gateway(left)
        Membership.objects.filter(user=person).delete()
        wrong = []
        for address in of_people():
            status, text = ask(left, address, path_of(address))
            if status not in (401, 403, 404) or any(word in text for word in FOREIGN):
                wrong.append(f"{address}: {status}")
        assert not wrong, "\n".join(wrong)
        assert not at_the_gateway(left), "it would record into that project"
        transaction.set_rollback(True)


def test_no_page_takes_a_token(owner: User) -> None:
    _, bearer = token(owner, project="default")
    wrong = []
    for address in pages():
        if not is_open(address) and address.method == "GET":
            status, text = ask(bearer, address, path_of(address))
            if not (status == 405 or (status in (301, 302) and "/login/" in text)):
                wrong.append(f"{address}: {status}")
    assert not wrong, "\n".join(wrong)
