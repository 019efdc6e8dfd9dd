"""Security keys (WebAuthn) as a second factor and to confirm it is you, with a key in software."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.test import Client
from fido2.utils import websafe_encode

from composer_web.accounts.models import AuditEntry, User
from composer_web.env import env
from tests.web.conftest import PASSWORD
from tests.web.soft_key import SoftKey

pytestmark = pytest.mark.django_db
ADD, CONFIRM, SECOND = "/2fa/webauthn/add/", "/2fa/webauthn/reauthenticate/", "/2fa/authenticate/"
MISSING = object()


@pytest.fixture(autouse=True)
def fresh_counters() -> None:
    cache.clear()


def visitor(name: str = "") -> Client:
    """A browser at a host name: no browser has keys at a number. With a name, the password was given."""
    client = Client(SERVER_NAME="localhost")
    if name:
        client.post("/login/", {"username": name, "password": PASSWORD})
    return client


def options(client: Client, path: str) -> dict[str, Any]:
    """What the page asks a key for."""
    text = client.get(path).content.decode()
    found = re.search(r'<script id="key-options" type="application/json">(.*?)</script>', text, re.S)
    assert found is not None, text
    return dict(json.loads(found.group(1)))


def confirmed(client: Client) -> Client:
    """The password was asked for once more."""
    client.post("/reauthenticate/", {"password": PASSWORD})
    return client


def registered(client: Client, name: str = "Key ring") -> SoftKey:
    key = SoftKey()
    answer = client.post(ADD, {"name": name, "credential": key.register(options(client, ADD))})
    assert answer.status_code == 302, answer.content.decode()
    return key


def test_a_key_is_added_used_renamed_and_removed(
    people: dict[str, User], django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[object]]
) -> None:
    owner = visitor("viewer")
    assert owner.get(ADD)["Location"] == "/reauthenticate/?next=%2F2fa%2Fwebauthn%2Fadd%2F"
    with django_capture_on_commit_callbacks(execute=True):
        key = registered(confirmed(owner))
    row = Authenticator.objects.get(type="webauthn")
    assert "Key ring" in owner.get("/2fa/").content.decode()
    assert len(owner.get("/2fa/recovery-codes/").context["unused_codes"]) == 10

    later = visitor("viewer")
    assert later.get("/")["Location"].startswith("/login/")  # the password alone is not enough
    answer = key.use(options(later, SECOND))
    assert later.post(SECOND, {"credential": answer})["Location"] == "/"
    assert later.get("/").status_code == 200
    row.refresh_from_db()
    assert row.last_used_at is not None
    for path in ("/2fa/", "/2fa/webauthn/"):
        assert "never" not in later.get(path).content.decode()

    assert later.get(f"/2fa/webauthn/keys/{row.pk}/remove/").status_code == 302  # asks who it is again
    assert later.post(CONFIRM, {"credential": key.use(options(later, CONFIRM)), "next": "/2fa/"})["Location"] == "/2fa/"
    too_long = later.post(f"/2fa/webauthn/keys/{row.pk}/edit/", {"name": "x" * 61}).content.decode()
    assert "at most 60 characters" in too_long
    later.post(f"/2fa/webauthn/keys/{row.pk}/edit/", {"name": "Laptop"})
    assert "Laptop" in later.get("/2fa/webauthn/").content.decode()
    assert "Laptop" in later.get(f"/2fa/webauthn/keys/{row.pk}/remove/").content.decode()
    later.post(f"/2fa/webauthn/keys/{row.pk}/remove/")
    assert not Authenticator.objects.exists()  # recovery codes too: there is nothing to recover
    assert visitor("viewer").get("/").status_code == 200

    told = AuditEntry.objects.filter(actor=people["viewer"], action__startswith="second_factor.").order_by("pk")
    assert [(entry.action, entry.detail.get("kind"), entry.detail.get("name")) for entry in told] == [
        ("second_factor.add", "webauthn", "Key ring"),
        ("second_factor.add", "recovery_codes", None),
        ("second_factor.rename", None, "Laptop"),
        ("second_factor.remove", "webauthn", "Laptop"),
        ("second_factor.remove", "recovery_codes", None),
    ]
    assert told[2].detail["before"] == "Key ring"


def test_a_key_that_is_not_the_persons_opens_nothing(people: dict[str, User]) -> None:
    key = registered(confirmed(visitor("viewer")))
    other = registered(confirmed(visitor("operator")))
    thief = visitor("viewer")
    asked = options(thief, SECOND)
    assert "wrong or was used" in thief.post(SECOND, {"credential": other.use(asked)}).content.decode()
    other.id = key.id  # it says that it is the right one
    thief.post(SECOND, {"credential": other.use(options(thief, SECOND))})
    assert thief.get("/").status_code == 302


def changed(answer: str) -> list[str]:
    """The answer with each of its parts missing, of another type, cut or nested too deep; and what is no answer."""
    deep = websafe_encode(b"\x81" * 5000)
    found = ["", "no JSON", "[]", "{}", "null", "7"]
    for path in [(name,) for name in json.loads(answer)] + [
        ("response", name) for name in json.loads(answer)["response"]
    ]:
        for value in (MISSING, None, 1, "", "AAAA", "é", [], {}, deep):
            whole = json.loads(answer)
            place = whole if len(path) == 1 else whole["response"]
            place[path[-1]] = value
            if value is MISSING:
                del place[path[-1]]
            found.append(json.dumps(whole))
    return found


@pytest.mark.slow
def test_an_odd_answer_is_refused_in_words(people: dict[str, User]) -> None:
    owner = confirmed(visitor("viewer"))
    made = changed(SoftKey().register(options(owner, ADD)))
    for text in made:
        answer = owner.post(ADD, {"credential": text})
        if answer.status_code != 200:  # what was changed is not asked for: a key like another
            assert answer["Location"] in ("/2fa/", "/2fa/recovery-codes/"), text
        options(owner, ADD)
    key = registered(owner)
    late = visitor("viewer")
    used = changed(key.use(options(late, SECOND)))
    for text in used:
        cache.clear()  # tries are counted
        assert late.post(SECOND, {"credential": text}).status_code == 200, text
    assert len(made) > 60 and len(used) > 80
    assert late.get("/").status_code == 302


def test_an_answer_is_good_once_for_one_page_and_one_site(people: dict[str, User]) -> None:
    key = registered(confirmed(visitor("viewer")))
    first, second = visitor("viewer"), visitor("viewer")
    answer = key.use(options(first, SECOND))
    options(second, SECOND)
    second.post(SECOND, {"credential": answer})  # listened to, and played to another challenge
    assert second.get("/").status_code == 302
    assert first.post(SECOND, {"credential": answer}).status_code == 302
    third = visitor("viewer")
    assert third.post(SECOND, {"credential": answer}).status_code == 200
    key.origin = "http://localhost.evil.example"
    third.post(SECOND, {"credential": key.use(options(third, SECOND))})
    assert third.get("/").status_code == 302


def test_wrong_keys_are_counted(people: dict[str, User]) -> None:
    key = registered(confirmed(visitor("viewer")))
    cache.clear()
    guesser = visitor("viewer")
    for _ in range(6):
        guesser.post(SECOND, {"credential": SoftKey(id=key.id).use(options(guesser, SECOND))})
    guesser.post(SECOND, {"credential": key.use(options(guesser, SECOND))})
    assert guesser.get("/").status_code == 302


def test_keys_of_others_are_not_there(people: dict[str, User]) -> None:
    registered(confirmed(visitor("viewer")))
    row = Authenticator.objects.get(type="webauthn")
    other = confirmed(visitor("admin"))
    for action in ("edit", "remove"):
        path = f"/2fa/webauthn/keys/{row.pk}/{action}/"
        assert other.get(path).status_code == 404
        assert other.post(path, {"name": "mine"}).status_code == 404
        assert visitor().get(path).status_code == 302
    assert "Key ring" not in other.get("/2fa/webauthn/").content.decode()
    row.refresh_from_db()
    assert row.data["name"] == "Key ring"


def test_nothing_is_added_without_the_password_or_for_an_old_page(people: dict[str, User]) -> None:
    owner = visitor("viewer")
    assert owner.post(ADD, {"name": "x", "credential": "{}"}).status_code == 302  # to the password
    confirmed(owner)
    asked = options(owner, ADD)
    options(owner, ADD)  # another page was opened: the first one's challenge is no longer good
    assert "wrong or was used" in owner.post(ADD, {"credential": SoftKey().register(asked)}).content.decode()
    elsewhere = SoftKey(origin="https://evil.example")
    owner.post(ADD, {"credential": elsewhere.register(options(owner, ADD))})
    assert not Authenticator.objects.exists()


def test_a_refused_key_is_asked_for_again(people: dict[str, User]) -> None:
    owner = visitor("viewer")
    registered(confirmed(owner))
    owner.cookies.clear()
    owner.post("/login/", {"username": "viewer", "password": PASSWORD})
    code = Authenticator.objects.get(type="recovery_codes").wrap().get_unused_codes()[0]
    owner.post(SECOND, {"code": code})
    answer = owner.post(CONFIRM, {"credential": SoftKey().use(options(owner, CONFIRM)), "next": "/2fa/webauthn/add/"})
    assert answer["Location"] == "/2fa/webauthn/reauthenticate/?next=%2F2fa%2Fwebauthn%2Fadd%2F"
    assert "wrong or was used" in owner.get(answer["Location"]).content.decode()
    assert owner.get(ADD).status_code == 302


def test_a_key_is_the_second_factor_that_is_required(people: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env(), "require_mfa", "everybody")
    owner = visitor("viewer")
    assert owner.get("/runs/")["Location"] == "/2fa/"
    registered(confirmed(owner))
    assert owner.get("/runs/").status_code == 200
    row = Authenticator.objects.get(type="webauthn")
    owner.post(f"/2fa/webauthn/keys/{row.pk}/remove/")
    assert owner.get("/runs/")["Location"] == "/2fa/"


def test_pages_of_keys_have_no_inline_script(people: dict[str, User]) -> None:
    owner = confirmed(visitor("viewer"))
    registered(owner, name="</script><script>alert(1)</script>")
    row = Authenticator.objects.get(type="webauthn")
    late = visitor("viewer")
    keys = [f"/2fa/webauthn/keys/{row.pk}/{action}/" for action in ("edit", "remove")]
    for who, path in [(late, SECOND), *((owner, path) for path in ("/2fa/", "/2fa/webauthn/", ADD, CONFIRM, *keys))]:
        answer = who.get(path)
        assert answer.status_code == 200, path
        tags = re.findall(r"<script[^>]*>", answer.content.decode())
        assert all("src=" in tag or 'type="application/json"' in tag for tag in tags), (path, tags)
