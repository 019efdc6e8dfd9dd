"""Accounts made, changed and disabled in the product: by page, API and command line; for admins alone, and never the last one."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.core import mail
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone

from composer_web.accounts import people as accounts
from composer_web.accounts.models import AuditEntry, Invitation, Role, User
from composer_web.accounts.projects import create_project, set_member
from composer_web.accounts.services import authenticate_token, create_token, create_user
from composer_web.core.errors import Conflict, UserError
from composer_web.env import env
from opencomposer.app import main
from tests.web.cli.support import connected
from tests.web.helpers import as_read

pytestmark = pytest.mark.django_db
PASSWORD = "a long and rare sentence 7"


def visitor(user: User | None) -> Client:
    made = Client()
    if user is not None:
        made.force_login(user)
    return made


def posted(client: Client, path: str, **fields: str) -> Any:
    return client.post(path, fields)


def test_from_the_invitation_to_the_first_page(people: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> None:
    create_project(slug="lab", name="Lab", actor=None)
    before = AuditEntry.objects.latest("pk").pk
    admin, nobody = visitor(people["admin"]), visitor(None)
    fields = {"username": "ada", "role": "reviewer", "email": "ada@example.org"}
    shown = posted(admin, "/people/invite/", **fields, project="lab", project_role="operator")
    assert (shown.status_code, shown["Cache-Control"]) == (200, "no-store")
    link = re.search(r'value="http://testserver(/join/\?code=[\w-]{43})"', shown.content.decode())
    assert link is not None
    row, secret = Invitation.objects.get(), link[1].partition("=")[2]
    assert secret not in str(Invitation.objects.values().get()), "only its hash is kept"
    assert secret not in str(list(AuditEntry.objects.values()))
    assert secret not in admin.get("/people/").content.decode(), "the link is shown once"
    page = nobody.get(link[1])
    assert "You are invited as <b>ada</b>" in page.content.decode()
    assert (page["Cache-Control"], page["Referrer-Policy"]) == ("no-store", "no-referrer")
    for password, again, why in (("short", "short", "too short"), (PASSWORD, "other", "differ")):
        answer = posted(nobody, "/join/", code=secret, password=password, again=again)
        assert (answer.status_code, why in answer.content.decode()) == (422, True)
    assert posted(nobody, "/join/", code=secret, password=PASSWORD, again=PASSWORD)["Location"] == "/login/"
    made = User.objects.get(username="ada")
    assert (made.role, made.email) == ("reviewer", "ada@example.org")
    assert [(m.project.slug, m.role) for m in made.memberships.all()] == [("lab", "operator")]
    row.refresh_from_db()
    assert row.used_by == made
    assert posted(nobody, "/login/", login="ada", username="ada", password=PASSWORD).status_code in (200, 302)
    assert authenticate(username="ada", password=PASSWORD) == made
    again = posted(nobody, "/join/", code=secret, password=PASSWORD + "x", again=PASSWORD + "x")
    assert (again.status_code, authenticate(username="ada", password=PASSWORD)) == (404, made), "it works once"
    noted = AuditEntry.objects.filter(action__in=["user.invite", "user.create", "user.join"], pk__gt=before)
    assert sorted(noted.values_list("action", "actor_name")) == [
        ("user.create", "admin"), ("user.invite", "admin"), ("user.join", "ada"),
    ]  # fmt: skip


def test_an_invitation_that_is_worth_nothing(people: dict[str, User]) -> None:
    old, first = accounts.invite(actor=people["admin"], username="old")
    Invitation.objects.filter(pk=old.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    gone, second = accounts.invite(actor=people["admin"], username="gone")
    assert posted(visitor(people["admin"]), f"/people/invitations/{gone.pk}/withdraw/").status_code == 302
    for secret in (first, second, "", "x" * 43):
        assert visitor(None).get(f"/join/?code={secret}").status_code == 404
        assert posted(visitor(None), "/join/", code=secret, password=PASSWORD, again=PASSWORD).status_code == 404
        with pytest.raises(Conflict, match="ask an admin"):
            accounts.accept(secret=secret, password=PASSWORD)
    assert not User.objects.filter(username__in=["old", "gone"]).exists()
    fine, third = accounts.invite(actor=None, username="fine")
    user = accounts.accept(secret=third, password=PASSWORD)
    with pytest.raises(Conflict, match="disable the account"):
        accounts.withdraw(invitation=fine, actor=None)
    for wrong in ({"used_at": None}, {"withdrawn_at": timezone.now()}, {"role": "king"}, {"project_role": "viewer"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Invitation.objects.filter(used_by=user).update(**wrong)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"username": "viewer"}, "username"),
        ({"username": "VIEWER"}, "username"),
        ({"username": "a b"}, "username"),
        ({"username": ""}, "username"),
        ({"username": "a" * 151}, "username"),
        ({"username": "x", "role": "king"}, "role"),
        ({"username": "x", "email": "nowhere"}, "email"),
        ({"username": "x", "project": "none", "project_role": "viewer"}, "project"),
        ({"username": "x", "project": "default"}, "project_role"),
        ({"username": "x", "days": 31}, "days"),
        ({"username": "twice"}, "username"),
    ],
)
def test_what_is_refused_names_its_field(people: dict[str, User], fields: dict[str, Any], field: str) -> None:
    accounts.invite(actor=None, username="twice")
    with pytest.raises(UserError) as error:
        accounts.invite(actor=None, **fields)
    assert error.value.field == field
    assert Invitation.objects.count() == 1


def test_the_link_goes_out_by_mail_where_there_is_a_server(
    people: dict[str, User], monkeypatch: pytest.MonkeyPatch, bearer: Callable[..., dict[str, str]]
) -> None:
    made, _ = accounts.invite(actor=None, username="a", email="a@example.org")
    assert not accounts.send(made, "https://x/") and mail.outbox == []
    monkeypatch.setattr(env(), "email_url", "smtp://mail.example:587")
    monkeypatch.setattr(env(), "public_url", "https://product.example/")
    body = {"username": "b", "email": "b@example.org"}
    answer = (
        Client().post("/api/v1/people/invitations", body, "application/json", headers=bearer("admin", "admin")).json()
    )
    assert answer["sent"] and answer["link"].startswith("https://product.example/join/?code=")
    (message,) = mail.outbox
    assert message.to == ["b@example.org"] and answer["link"] in message.body


def test_who_is_disabled_is_out_at_once_and_comes_back_with_new_sessions(people: dict[str, User]) -> None:
    user, admin = people["operator"], visitor(people["admin"])
    inside = visitor(user)
    token, secret = create_token(user=user, name="t", scopes=["read"])
    assert inside.get("/runs/").status_code == 200 and authenticate_token(secret) == token
    posted(admin, "/people/disable/", username=user.username)
    user.refresh_from_db()
    assert not user.is_active and authenticate_token(secret) is None
    assert inside.get("/runs/")["Location"].startswith("/login/")
    assert authenticate(username=user.username, password="x") is None
    posted(admin, "/people/enable/", username=user.username)
    assert inside.get("/runs/")["Location"].startswith("/login/"), "the old session stays ended"
    assert authenticate_token(secret) is None, "and so does the token"
    user.refresh_from_db()
    assert visitor(user).get("/runs/").status_code == 200
    noted = AuditEntry.objects.filter(target=f"user:{user.pk}").order_by("pk")
    assert [(one.action, one.actor_name) for one in noted][-2:] == [("user.disable", "admin"), ("user.enable", "admin")]


def test_the_last_admin_stays(people: dict[str, User], bearer: Callable[..., dict[str, str]]) -> None:
    admin, client = people["admin"], visitor(people["admin"])
    for act in (
        lambda: accounts.disable(user=admin, actor=admin),
        lambda: accounts.change_role(user=admin, role="viewer", actor=admin),
    ):
        with pytest.raises(Conflict, match="last admin"):
            act()
    for path, fields in (("disable", {}), ("role", {"role": "operator"})):
        posted(client, f"/people/{path}/", username=admin.username, **fields)
    for change in ({"active": False}, {"role": "viewer"}):
        answer = Client().patch(
            f"/api/v1/people/accounts/{admin.username}", change, "application/json", headers=bearer("admin", "admin")
        )
        assert answer.status_code == 409
    admin.refresh_from_db()
    assert (admin.role, admin.is_active) == ("admin", True)
    accounts.change_role(user=people["operator"], role="admin", actor=admin)
    accounts.disable(user=admin, actor=people["operator"])
    with pytest.raises(Conflict, match="last admin"):  # the other one is disabled
        accounts.change_role(user=people["operator"], role="viewer", actor=None)


@pytest.mark.django_db(transaction=True)
def test_two_admins_who_demote_each_other_at_once_leave_one() -> None:
    pair = [create_user(username=name, password=PASSWORD, role="admin") for name in ("one", "two")]
    ready, ended = threading.Barrier(2), []

    def demote(user: User) -> None:
        try:
            ready.wait(20.0)
            accounts.change_role(user=user, role="viewer", actor=None)
            ended.append("done")
        except Conflict:
            ended.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=demote, args=(user,)) for user in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert sorted(ended) == ["done", "refused"]
    assert User.objects.filter(role="admin", is_active=True).count() == 1


@pytest.mark.parametrize("who", ["nobody", "viewer", "reviewer", "operator", "admin of a project"])
def test_nobody_else_may(people: dict[str, User], who: str, bearer: Callable[..., dict[str, str]]) -> None:
    """An admin of one project, too, has no say about accounts."""
    place = create_project(slug="lab", name="Lab", actor=None)
    set_member(project=place, username="reviewer", role="admin", actor=None)
    role = "reviewer" if who == "admin of a project" else who
    client = visitor(people.get(role))
    row, _ = accounts.invite(actor=None, username="waiting")
    tries = [
        client.get("/people/?project=lab"),
        posted(client, "/people/invite/?project=lab", username="mine", role="admin"),
        posted(client, f"/people/invitations/{row.pk}/withdraw/"),
        posted(client, "/people/role/", username=role, role="admin"),
        posted(client, "/people/disable/", username="admin"),
    ]
    refused = {302} if who == "nobody" else {403}
    assert {answer.status_code for answer in tries} == refused
    headers = {} if who == "nobody" else bearer(role, "read")
    calls = [
        Client().get("/api/v1/people?project=lab", headers=headers),
        Client().get("/api/v1/people/invitations", headers=headers),
        Client().post("/api/v1/people/invitations", {"username": "mine"}, "application/json", headers=headers),
        Client().delete(f"/api/v1/people/invitations/{row.pk}", headers=headers),
        Client().patch(f"/api/v1/people/accounts/{role}", {"role": "admin"}, "application/json", headers=headers),
    ]
    assert {answer.status_code for answer in calls} == {401 if who == "nobody" else 403}
    assert not User.objects.filter(role="admin").exclude(username="admin").exists()
    assert [one.username for one in accounts.invitations()] == ["waiting"]


def test_roles_here_and_in_projects(people: dict[str, User]) -> None:
    create_project(slug="lab", name="Lab", actor=None)
    admin = visitor(people["admin"])
    posted(admin, "/people/role/", username="viewer", role="operator")
    posted(admin, "/people/member/", username="viewer", project="lab", role="reviewer")
    user = User.objects.get(username="viewer")
    assert user.role == Role.OPERATOR and user.memberships.get().role == "reviewer"
    text = as_read(admin.get("/people/").content)
    assert '<a href="/projects/lab/">Lab</a>: reviewer' in text
    assert posted(admin, "/people/role/", username="nobody", role="viewer").status_code == 404
    assert posted(admin, "/people/crown/", username="viewer").status_code == 404


def test_by_command_line(people: dict[str, User]) -> None:
    _, secret = create_token(user=people["admin"], name="cli", scopes=["admin"])

    def cli(*words: str) -> Any:
        out = io.StringIO()
        assert main([*words, "--json"], client=connected(secret), out=out) == 0
        return json.loads(out.getvalue())

    made = cli(
        "invitations", "create", "ada", "--role", "operator", "--member-of", "default", "--member-role", "reviewer"
    )
    assert not made["sent"] and "/join/?code=" in made["link"]
    assert [(one["username"], one["project"]) for one in cli("invitations", "list")] == [("ada", "default")]
    user = accounts.accept(secret=made["link"].partition("=")[2], password=PASSWORD)
    assert cli("people", "update", "ada", "--role", "admin")[0]["role"] == "admin"
    assert cli("people", "stop", "ada")[0]["active"] is False
    assert cli("people", "start", "ada")[0]["active"] is True
    assert next(one for one in cli("people", "list") if one["username"] == "ada")["projects"] == {"default": "reviewer"}
    user.refresh_from_db()
    assert user.is_active
    other = cli("invitations", "create", "bob")
    cli("invitations", "delete", str(other["id"]))
    assert cli("invitations", "list") == []
