"""Every address of the product: nobody, the wrong role, and people of another project get nothing out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from composer_web.accounts import url_resources
from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT, Project, Role, User
from composer_web.accounts.projects import create_project, set_member
from composer_web.accounts.services import create_token, create_user
from composer_web.api_root import api
from composer_web.policies.models import Policy
from tests.browser import seed
from tests.web.addresses import Address, operations, pages
from tests.web.seeded import few, the_rest

pytestmark = pytest.mark.django_db

OPEN_PAGES = (
    "^(?:evals|sessions)/", "login/", "logout/", "join/", "account/", "reauthenticate/", "2fa/", "oidc/", "v1/", "metrics",
)  # fmt: skip
"""Begins of addresses that do not go through `page`: those that moved; log-in and one's own account are allauth's; `join/`
is for who has an invitation (tests/web/accounts/test_people.py), `v1/` is the gateway's, with tokens of its own
(tests/web/gateway/test_gateway.py), and so is `metrics`."""
OPEN_OPERATIONS = {"GET api/v1/health/live"}
SECRET = "Quartz"
"""Stands in the names of what the other project has."""
NEVER_FOUND = {
    "GET rollouts/exports/<int:pk>/file/", "GET evaluations/releases/<slug:benchmark>/<int:number>/",
    "GET imports/<slug:name>/", "GET runs/<int:pk>/part/<slug:part>/", "GET api/v1/endpoints/{name}",
    "GET api/v1/review/{name}/labels/{rollout}", "GET api/v1/tasks/trajectories/{name}/export/{format}",
    "GET suites/<slug:name>/export/<slug:form>/", "GET tasks/<slug:slug>/export/<slug:form>/",
    "GET api/v1/exports/{export_id}/file", "GET rollouts/<int:pk>/export/<slug:form>/",
}  # fmt: skip
"""What is a 404 for the sample, whoever asks: no file, no such part or form."""


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[dict[str, User]]:
    """The seeded product in a closed project that is no library, beside a project of a stranger who is an admin there."""
    with django_db_blocker.unblock(), transaction.atomic():  # type: ignore[attr-defined]
        made = few()
        people = dict(made.people)
        the_rest(people["operator"], SECRET)
        Project.objects.filter(pk=DEFAULT_PROJECT).update(open=False, library=False)
        project = Project.objects.get(pk=DEFAULT_PROJECT)
        for role in Role.values[:3]:
            people[f"member-{role}"] = create_user(username=f"member-{role}", password=seed.PASSWORD, role="viewer")
            set_member(project=project, username=f"member-{role}", role=role, actor=None)
        other = create_project(slug="elsewhere", name="Elsewhere", actor=None)
        people["stranger"] = create_user(username="stranger", password=seed.PASSWORD, role="viewer")
        set_member(project=other, username="stranger", role="admin", actor=None)
        people["nowhere"] = create_user(username="nowhere", password=seed.PASSWORD, role="operator")
        yield people
        transaction.set_rollback(True)


def client(user: User | None) -> Client:
    made = Client(raise_request_exception=False)
    if user is not None:
        made.force_login(user)
    return made


def ask(who: Client, address: Address, path: str) -> tuple[int, str]:
    """(status, text) of an answer, with an empty form or document where something is sent."""
    body = {} if address.method == "GET" else {"data": "{}", "content_type": "application/json"}
    if address.method == "POST" and not address.route.startswith("api/"):
        body = {}
    answer = getattr(who, address.method.lower())(path, **body)
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return answer.status_code, f"{answer.get('Location', '')} {content.decode(errors='replace')}"


def all_addresses() -> list[Address]:
    return [*pages(), *operations()]


def is_open(address: Address) -> bool:
    return str(address) in OPEN_OPERATIONS or (address.role is None and address.route.startswith(OPEN_PAGES))


def test_every_address_has_a_rule() -> None:
    """A new address fails here until `accounts.url_resources` says what it is about, and `page` or `needs` who may."""
    described = {
        f"{m.upper()} {p.lstrip('/')}" for p, found in api.get_openapi_schema()["paths"].items() for m in found
    }
    assert {str(address).replace("{path:", "{") for address in operations()} == described
    wrong = [f"{address}: who may? (page, needs)" for address in all_addresses() if not known(address)]
    for address in all_addresses():
        try:
            assert is_open(address) or address.objects is not None
        except url_resources.NoOwner as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)
    assert len(all_addresses()) > 250


def known(address: Address) -> bool:
    return is_open(address) or address.role is not None


def test_nobody_gets_anything(world: dict[str, User]) -> None:
    visitor, wrong = client(None), []
    for address in all_addresses():
        if is_open(address):
            continue
        status, text = ask(visitor, address, path_of(address))
        by_api = address.route.startswith("api/v1/") and address.route != "api/v1/docs"
        if not (status == 401 if by_api else status == 405 or (status == 302 and "/login/" in text)):
            wrong.append(f"{address}: {status}")
    assert not wrong, "\n".join(wrong)


def test_every_sample_is_there(world: dict[str, User]) -> None:
    """What the other tests are refused exists: an admin gets it."""
    admin, wrong = client(world["admin"]), []
    for address in all_addresses():
        if is_open(address) or not address.objects or address.own:
            continue
        if address.method == "GET" and str(address) not in NEVER_FOUND:
            status, _ = ask(admin, address, path_of(address))
            if status not in (200, 204, 302, 405, 409, 422, 503):
                wrong.append(f"{address} {path_of(address)}: {status}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.integration
def test_a_stranger_finds_nothing_of_another_project(world: dict[str, User]) -> None:
    """An admin of his own project: what is elsewhere does not exist for him, and no list, count or form names it."""
    stranger, wrong = client(world["stranger"]), []
    for address in all_addresses():
        if is_open(address) or address.own:
            continue
        status, text = tried(stranger, address)
        if status >= 500 or (address.objects and status not in (404, 405)):
            wrong.append(f"{address}: {status}")
        wrong += [f"{address} tells of {word}" for word in (SECRET, "scale-train") if word in text]
    assert not wrong, "\n".join(wrong)


@pytest.mark.integration
def test_a_token_of_a_stranger_finds_nothing(world: dict[str, User]) -> None:
    wrong = []
    with acting(Access(world["stranger"].pk, Role.ADMIN, Project.objects.get(slug="elsewhere").pk)):
        _, secret = create_token(user=world["stranger"], name="test", scopes=["admin"])
    bearer = Client(headers={"Authorization": f"Bearer {secret}"}, raise_request_exception=False)
    for address in operations():
        if not is_open(address) and address.objects and not address.own:
            status, _ = tried(bearer, address)
            if status != 404:
                wrong.append(f"{address}: {status}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.integration
def test_a_member_does_what_his_role_allows(world: dict[str, User]) -> None:
    """One rank below what an address asks for is a 403; the account's own role does not matter in a project."""
    below = {role: client(world[f"member-{Role.values[i - 1]}"]) for i, role in enumerate(Role.values) if i}
    wrong = []
    for address in all_addresses():
        if not is_open(address) and not address.own and address.role not in (None, "viewer"):
            status, _ = tried(below[str(address.role)], address)
            if status not in (403, 405):
                wrong.append(f"{address}: {status}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.integration
def test_who_is_in_no_project_gets_nothing(world: dict[str, User]) -> None:
    nowhere, wrong = client(world["nowhere"]), []
    for address in all_addresses():
        if is_open(address) or url_resources.installation(address.route) or address.own:
            continue
        status, text = tried(nowhere, address)
        if status not in (403, 404, 405) or SECRET in text:
            wrong.append(f"{address}: {status}")
    assert not wrong, "\n".join(wrong)


def tried(who: Client, address: Address) -> tuple[int, str]:
    """As `ask`, and whatever it changed is taken back."""
    with transaction.atomic():
        found = ask(who, address, path_of(address))
        transaction.set_rollback(True)
    return found


def path_of(address: Address) -> str:
    path = address.path(DEFAULT_PROJECT)
    assert path is not None, f"{address}: the world has no such thing; make one in `seeded.the_rest`"
    return path


def test_a_member_sees_only_his_project_in_lists(world: dict[str, User]) -> None:
    member, stranger = client(world["member-viewer"]), client(world["stranger"])
    for path in ("/api/v1/runs", "/api/v1/rollouts", "/api/v1/tasks", "/api/v1/suites", "/api/v1/policies"):
        assert member.get(path).json()["items"], path
        assert stranger.get(path).json()["items"] == [], path
    assert member.get("/api/v1/runs?project=elsewhere").status_code == 404
    refused = json.loads(stranger.get("/api/v1/runs?project=default").content)
    assert refused["error"]["code"] == "not_found"


def test_head_is_answered_like_get(world: dict[str, User]) -> None:
    nobody, viewer, wrong = client(None), client(world["viewer"]), []
    for address in pages():
        if address.method == "GET" and not address.route.startswith(OPEN_PAGES):
            path = path_of(address)
            asked, told = nobody.get(path).status_code, nobody.head(path).status_code
            if asked != told:
                wrong.append(f"{address}: GET {asked}, HEAD {told}")
    assert not wrong, "\n".join(wrong)
    for path in ("/", "/runs/", "/rollouts/", "/nothing/"):
        answer = viewer.head(path)
        assert (answer.status_code, answer.content) == (viewer.get(path).status_code, b""), path


@pytest.mark.integration
def test_no_answer_about_a_wrong_name_tells_the_right_ones(world: dict[str, User]) -> None:
    """What resolves names says which there are: to a stranger only his own. Also where the whole installation is asked."""
    for policy in Policy.objects.all():
        Policy.objects.filter(pk=policy.pk).update(name=f"{SECRET}-policy-{policy.pk}")
    theirs = Policy.objects.earliest("pk").name
    stranger, wrong, asked = client(world["stranger"]), [], 0
    schema = api.get_openapi_schema()
    for path, found in schema["paths"].items():
        for method, operation in found.items():
            given = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            texts = text_fields(schema, body)
            if not given and not texts:
                continue
            for value in ("nope@1", theirs):
                words = dict.fromkeys(set(given) - {"project"}, value)
                sent = (
                    {} if method == "get" else {"data": dict.fromkeys(texts, value), "content_type": "application/json"}
                )
                with transaction.atomic():
                    answer = getattr(stranger, method)(re.sub(r"\{[^}]*\}", "nope", path), query_params=words, **sent)
                    transaction.set_rollback(True)
                asked += 1
                text = answer.getvalue().decode(errors="replace").replace(value, "").replace(theirs, "")
                if answer.status_code >= 500 or any(word in text for word in (SECRET, "scale-train")):
                    wrong.append(f"{method} {path} of {value}: {answer.status_code} {text[:160]}")
    checked = stranger.get("/api/v1/promotions/check", {"policy": theirs})
    assert checked.status_code == 422 and "there is no policy" in checked.content.decode()
    assert not wrong, "\n".join(wrong)
    assert asked > 100


def text_fields(schema: dict[str, Any], body: dict[str, Any] | None) -> list[str]:
    """The fields of a body that may be text."""
    name = str((body or {}).get("schema", {}).get("$ref", "")).rpartition("/")[2]
    fields = schema["components"]["schemas"].get(name, {}).get("properties", {})
    return sorted(key for key, one in fields.items() if "string" in json.dumps(one))
