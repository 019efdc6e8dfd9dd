"""Log-in: second factors, rate limits, sessions, and OpenID Connect against a provider on the loopback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.services import create_user
from composer_web.env import env
from composer_web.system import health
from tests.web import oidc_provider
from tests.web.conftest import PASSWORD

pytestmark = pytest.mark.django_db
NOW = 57_000_000
"""The time step in which these tests play."""


@pytest.fixture(autouse=True)
def fresh_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tried to log in yet, and the clock of one-time codes stands still."""
    cache.clear()
    monkeypatch.setattr(totp, "yield_hotp_counters_from_time", lambda: iter((NOW - 1, NOW, NOW + 1)))


def log_in(client: Client, name: str = "viewer", password: str = PASSWORD, **more: Any) -> HttpResponse:
    return client.post("/login/", {"username": name, "password": password}, **more)  # type: ignore[return-value]


def test_a_form_older_than_the_log_in_says_what_to_do() -> None:
    client = Client(enforce_csrf_checks=True)
    client.get("/login/")
    refused = client.post("/login/", {"username": "viewer", "csrfmiddlewaretoken": "f" * 64})
    assert refused.status_code == 403
    page = refused.content.decode()
    assert "Form out of date" in page and "reload the page" in page
    assert "style=" not in page and "<style" not in page, "the policy of the page refuses inline style"


def code(secret: str, counter: int) -> str:
    return str(totp.format_hotp_value(totp.hotp_value(secret, counter)))


def confirm_password(client: Client, path: str) -> None:
    """What changes the ways to log in asks for the password once more."""
    asked = client.get(path)["Location"]
    assert asked.startswith("/reauthenticate/?next=")
    assert client.post(asked, {"password": "wrong"}).status_code == 200
    assert client.post(asked, {"password": PASSWORD})["Location"] == path


def with_second_factor(client: Client) -> tuple[str, list[str]]:
    """Sets one up by its pages; returns the secret and the recovery codes."""
    confirm_password(client, "/2fa/totp/activate/")
    html = client.get("/2fa/totp/activate/").content.decode()
    found = re.search(r'id="authenticator_secret" value="(\w+)"', html)
    assert found is not None, html
    answer = client.post("/2fa/totp/activate/", {"code": code(found.group(1), NOW - 1)}, follow=True)
    assert answer.status_code == 200
    html = client.get("/2fa/recovery-codes/").content.decode()
    listed = re.search(r"<textarea[^>]*>([^<]*)", html)
    assert listed is not None
    return found.group(1), listed.group(1).split()


def test_a_second_factor_is_asked_for_and_no_code_works_twice(
    people: dict[str, User], django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[object]]
) -> None:
    owner = Client()
    log_in(owner)
    with django_capture_on_commit_callbacks(execute=True):
        secret, recovery = with_second_factor(owner)
    assert len(recovery) == 10
    assert secret not in str(list(Authenticator.objects.values_list("data", flat=True)))  # sealed
    assert AuditEntry.objects.filter(action="second_factor.add", actor=people["viewer"]).count() == 2

    visitor = Client()
    assert log_in(visitor)["Location"] == "/2fa/authenticate/"
    assert visitor.get("/").status_code == 302  # not yet in
    assert "wrong or was used" in visitor.post("/2fa/authenticate/", {"code": "000000"}).content.decode()
    assert visitor.post("/2fa/authenticate/", {"code": code(secret, NOW)})["Location"] == "/"
    assert visitor.get("/").status_code == 200

    thief = Client()
    log_in(thief)
    assert thief.post("/2fa/authenticate/", {"code": code(secret, NOW)}).status_code == 200
    assert thief.get("/").status_code == 302

    lost_phone = Client()
    log_in(lost_phone)
    assert lost_phone.post("/2fa/authenticate/", {"code": recovery[0]}).status_code == 302
    log_in(thief)
    assert thief.post("/2fa/authenticate/", {"code": recovery[0]}).status_code == 200


def test_wrong_passwords_are_counted(people: dict[str, User]) -> None:
    for _ in range(5):
        assert "password is wrong" in log_in(Client(), password="wrong").content.decode()
    html = log_in(Client()).content.decode()  # the right one, too late
    assert "Too many attempts" in html
    assert log_in(Client(), "operator").status_code == 302  # others are not kept out
    refused = AuditEntry.objects.filter(action="user.refused")
    assert refused.count() >= 5
    assert set(refused.values_list("actor_name", flat=True)) == {"viewer"}
    assert "wrong" not in str(list(refused.values_list("detail", flat=True)))


def test_wrong_codes_are_counted(people: dict[str, User]) -> None:
    owner = Client()
    log_in(owner)
    secret, _ = with_second_factor(owner)
    cache.clear()
    visitor = Client()
    log_in(visitor)
    for _ in range(6):
        visitor.post("/2fa/authenticate/", {"code": "000000"})
    visitor.post("/2fa/authenticate/", {"code": code(secret, NOW + 1)})
    assert visitor.get("/").status_code == 302


def test_a_session_is_new_after_log_in_and_ends_elsewhere(people: dict[str, User]) -> None:
    visitor, other = Client(), Client()
    visitor.get("/login/")
    visitor.session["planted"] = "by somebody"
    visitor.session.save()
    before = visitor.session.session_key
    answer = log_in(visitor)
    assert visitor.session.session_key != before
    cookie = answer.cookies["sessionid"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    log_in(other)
    assert other.get("/").status_code == 200
    html = visitor.get("/account/sessions/").content.decode()
    assert "127.0.0.1" in html
    visitor.post("/account/sessions/")
    assert other.get("/").status_code == 302
    assert visitor.get("/").status_code == 200
    visitor.post("/logout/")
    assert visitor.get("/").status_code == 302


def test_nobody_signs_up(people: dict[str, User]) -> None:
    for path in ("/signup/", "/account/signup/", "/password/reset/", "/account/email/"):
        assert Client().get(path).status_code == 404, path


def test_a_second_factor_can_be_required(people: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env(), "require_mfa", "admins")
    admin, operator = Client(), Client()
    log_in(admin, "admin")
    log_in(operator, "operator")
    assert operator.get("/runs/").status_code == 200
    assert admin.get("/runs/")["Location"] == "/2fa/"
    assert admin.get("/api/v1/runs").json()["error"]["code"] == "forbidden"
    with_second_factor(admin)
    assert admin.get("/runs/").status_code == 200
    monkeypatch.setattr(env(), "require_mfa", "everybody")
    assert operator.get("/runs/").status_code == 302


def test_pages_of_security_have_nothing_inline(people: dict[str, User]) -> None:
    visitor = Client()
    log_in(visitor)
    paths = ["/2fa/", "/2fa/totp/activate/", "/account/password/", "/account/sessions/", "/account/sign-on/"]
    confirm_password(visitor, "/2fa/totp/activate/")
    pages = [(visitor, path) for path in paths] + [(Client(), "/login/")]
    for who, path in pages:
        answer = who.get(path)
        assert answer.status_code == 200, path
        html = answer.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>", html), path
        assert not re.search(r"<[^>]+\s(on[a-z]+|style)=", re.sub(r'"[^"]*"', '""', html)), path
        assert html.count("<h1") <= 1, path
        assert Client().get(path).status_code in (200, 302)
    other = Client()
    log_in(other, "reviewer")
    with_second_factor(other)
    for path in ("/2fa/", "/2fa/recovery-codes/", "/2fa/recovery-codes/generate/", "/2fa/totp/deactivate/"):
        assert other.get(path).status_code == 200, path


# OpenID Connect


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[oidc_provider.Provider]:
    with oidc_provider.running() as found:
        monkeypatch.setattr(env(), "oidc_issuer", found.url)
        monkeypatch.setattr(env(), "oidc_roles", "ml=operator,leads=admin")
        monkeypatch.setattr(env(), "oidc_domains", "example.org")
        app = {
            "provider_id": "oidc",
            "name": "Example",
            "client_id": oidc_provider.CLIENT_ID,
            "secret": oidc_provider.CLIENT_SECRET,
            "settings": {"server_url": found.url},
        }
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
        found.person = {"sub": "person-1", "preferred_username": "mia", "groups": ["ml"]}
        yield found


def way_back(browser: Client) -> str:
    """Address to which the provider sends the browser."""
    answer = browser.post("/oidc/oidc/login/?process=login&next=/runs/")
    assert answer.status_code == 302, answer.content
    parts = urlsplit(httpx.get(answer["Location"]).headers["Location"])
    return f"{parts.path}?{parts.query}"


def test_people_of_a_group_get_in_with_its_role(db: None, provider: oidc_provider.Provider) -> None:
    browser = Client()
    assert "Log in with" in browser.get("/login/").content.decode()
    assert browser.get(way_back(browser))["Location"] == "/runs/"
    mia = User.objects.get(username="mia")
    assert (mia.role, mia.has_usable_password()) == ("operator", False)
    assert browser.get("/runs/new/").status_code == 200
    assert AuditEntry.objects.filter(action="user.create", target=f"user:{mia.pk}").exists()

    provider.person |= {"groups": ["ml", "leads"]}
    later = Client()
    later.get(way_back(later))
    mia.refresh_from_db()
    assert mia.role == "admin"
    provider.person |= {"groups": []}
    gone = Client()
    assert gone.get(way_back(gone)).status_code == 403
    assert gone.get("/").status_code == 302


def test_the_last_admin_stays_one_whatever_the_groups_say(db: None, provider: oidc_provider.Provider) -> None:
    """The log-in succeeds, the role stays, and that is said until it is mended: in the audit log and on the health page."""

    def log_in(*groups: str) -> User:
        provider.person |= {"groups": list(groups)}
        browser = Client()
        assert browser.get(way_back(browser))["Location"] == "/runs/"
        return User.objects.get(username="mia")

    def said() -> list[str]:
        return [check.message for check in health.checks() if check.name == "admins" and not check.ok]

    def kept() -> int:
        return AuditEntry.objects.filter(action="user.role_kept", detail__asked="operator").count()

    assert (log_in("leads").role, said()) == ("admin", [])
    assert log_in("ml").role == "admin"
    assert log_in("ml").role == "admin"
    assert kept() == 1, "once, not at each log-in"
    (message,) = said()
    assert "mia is the last admin" in message and "operator" in message and "page People" in message
    assert (log_in("leads").role, said()) == ("admin", []), "the provider agrees again"
    assert (log_in("ml").role, len(said()), kept()) == ("admin", 1, 2)
    create_user(username="second", password="correct horse battery", role="admin")
    assert said() == []
    assert log_in("ml").role == "operator", "somebody else is an admin now"


@pytest.mark.parametrize(
    ("person", "role"),
    [
        ({"groups": [], "email": "mia@example.org", "email_verified": True}, "viewer"),
        ({"groups": [], "email": "mia@example.org", "email_verified": False}, ""),
        ({"groups": [], "email": "mia@example.org"}, ""),
        ({"groups": ["others"], "email": "mia@elsewhere.example", "email_verified": True}, ""),
        ({"groups": [], "email": "mia@example.org.evil.example", "email_verified": True}, ""),
    ],
)
def test_only_who_is_named_gets_in(
    db: None, provider: oidc_provider.Provider, person: dict[str, Any], role: str
) -> None:
    provider.person |= person
    browser = Client()
    answer = browser.get(way_back(browser))
    assert answer.status_code == (302 if role else 403)
    assert list(User.objects.values_list("role", flat=True)) == ([role] if role else [])


def test_nobody_gets_the_account_of_another(people: dict[str, User], provider: oidc_provider.Provider) -> None:
    people["admin"].email = "mia@example.org"
    people["admin"].save()
    provider.person |= {"preferred_username": "admin", "email": "mia@example.org", "email_verified": True}
    browser = Client()
    browser.get(way_back(browser))
    assert User.objects.exclude(pk__in=[user.pk for user in people.values()]).get().username.startswith("admin-")
    assert browser.get("/audit/").status_code == 403


def test_answers_that_are_not_ours_are_refused(db: None, provider: oidc_provider.Provider) -> None:
    browser = Client()
    address = way_back(browser)
    stranger = Client()
    assert stranger.get(address).status_code != 302  # a link that somebody sent: no state in this browser
    assert stranger.get("/").status_code == 302
    assert browser.get(address.partition("&state")[0] + "&state=guess").status_code != 302
    assert browser.get(address).status_code == 302
    assert browser.get(address).status_code != 302  # once
    for wrong in ({"aud": "another"}, {"iss": "https://elsewhere.example"}, {"exp": 1}):
        provider.wrong = wrong
        other = Client()
        assert other.get(way_back(other)).status_code != 302, wrong
        assert other.get("/").status_code == 302
