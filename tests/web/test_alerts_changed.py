"""Rules and webhooks that are there are changed, by page, API and command line; what a change means for what was open."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.services import create_token
from composer_web.alerts import services
from composer_web.alerts.models import Alert, Rule, Webhook
from composer_web.core.errors import UserError
from composer_web.env import env
from opencomposer.app import main
from tests.web.cli.support import connected

pytestmark = pytest.mark.django_db


@pytest.fixture
def hook(people: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> Webhook:
    monkeypatch.setattr(env(), "webhook_hosts", "127.0.0.1")
    return services.make_webhook(actor=None, name="chat", url="http://127.0.0.1:9/a")[0]


@pytest.fixture
def rule(hook: Webhook) -> Rule:
    return services.make_rule(
        actor=None, name="low reward", kind="metric", metric="reward/mean", comparison="below", threshold=0.1,
        emails=["a@example.org"], webhook=hook,
    )  # fmt: skip


def visitor(user: User | None) -> Client:
    made = Client()
    if user is not None:
        made.force_login(user)
    return made


def form_of(rule: Rule, **changes: str) -> dict[str, str]:
    """As the page's form sends it."""
    names = ("name", "kind", "metric", "comparison", "threshold", "window", "severity", "run_name", "quiet_minutes")
    shown = {name: str(getattr(rule, name)) for name in (*names, "role")}
    return {**shown, "emails": ", ".join(rule.emails), "webhook": str(rule.webhook_id), **changes}


def test_a_rule_is_edited_on_its_page(people: dict[str, User], rule: Rule) -> None:
    operator, path = visitor(people["operator"]), f"/alerts/rules/{rule.pk}/"
    assert path in operator.get("/alerts/rules/").content.decode()
    html = operator.get(path).content.decode()
    assert 'value="reward/mean"' in html and 'value="a@example.org"' in html
    assert operator.post(path, form_of(rule, name="lower", threshold="0.05"))["Location"] == "/alerts/rules/"
    rule.refresh_from_db()
    assert (rule.name, rule.threshold, rule.emails) == ("lower", 0.05, ["a@example.org"])
    entry = AuditEntry.objects.get(action="alert_rule.change")
    assert (entry.actor, entry.target) == (people["operator"], f"alert_rule:{rule.pk}")
    assert "lower" in str(entry.changes) and "low reward" in str(entry.changes), "before and after"
    wrong = operator.post(path, form_of(rule, metric=""))
    assert (wrong.status_code, "name the metric" in wrong.content.decode()) == (422, True)
    services.switch_webhook(webhook=Webhook.objects.get(), active=False, actor=None)
    assert operator.post(path, form_of(rule, emails="")).status_code == 302, "a webhook that is off stays chosen"
    rule.refresh_from_db()
    assert (rule.emails, rule.webhook_id is not None) == ([], True)
    for who, status in ((None, 302), ("viewer", 403), ("reviewer", 403)):
        browser = visitor(people[who] if who else None)
        assert browser.get(path).status_code == browser.post(path, form_of(rule, name="mine")).status_code == status
    assert not Rule.objects.filter(name="mine").exists()


def test_what_was_open_ends_when_something_else_is_watched(rule: Rule) -> None:
    services.saw(rule=rule, about="run:1", message="0.01")
    services.change_rule(rule=rule, actor=None, quiet_minutes=5, name="still the same")
    assert Alert.objects.filter(resolved_at=None).count() == 1
    services.change_rule(rule=rule, actor=None, threshold=0.001)
    assert not Alert.objects.filter(resolved_at=None).exists()
    with pytest.raises(UserError) as error:
        services.change_rule(rule=rule, actor=None, kind="infra_share", threshold=3.0)
    assert error.value.field == "threshold"
    rule.refresh_from_db()
    assert rule.kind == "metric"


def test_a_webhook_is_edited_on_its_page(people: dict[str, User], hook: Webhook) -> None:
    operator, path = visitor(people["operator"]), f"/alerts/webhooks/{hook.pk}/"
    before = hook.secret
    assert operator.get(path).status_code == 200
    changed = {"name": "room", "url": "http://127.0.0.1:9/b"}
    assert operator.post(path, changed)["Location"] == "/alerts/webhooks/"
    hook.refresh_from_db()
    assert (hook.name, hook.url, hook.secret) == ("room", "http://127.0.0.1:9/b", before)
    assert AuditEntry.objects.get(action="webhook.change").detail == changed
    inside = operator.post(path, {**changed, "url": "http://10.0.0.7/"})
    assert (inside.status_code, "private address" in inside.content.decode()) == (422, True)
    services.make_webhook(actor=None, name="other", url="http://127.0.0.1:9/c")
    taken = operator.post(path, {**changed, "name": "other"})
    assert (taken.status_code, "no other webhook has" in taken.content.decode()) == (422, True)
    for who, status in ((None, 302), ("viewer", 403), ("reviewer", 403)):
        browser = visitor(people[who] if who else None)
        assert browser.get(path).status_code == browser.post(path, changed).status_code == status
    for gone in ("/alerts/webhooks/999/", f"/alerts/webhooks/{hook.pk}/explode/", "/alerts/rules/999/"):
        assert operator.post(gone).status_code == 404


def test_by_api_and_command_line(
    people: dict[str, User], rule: Rule, hook: Webhook, bearer: Callable[..., dict[str, str]]
) -> None:
    api = Client()
    body: dict[str, Any] = {"name": "failures", "kind": "run_failed"}
    for headers, status in (({}, 401), (bearer("viewer"), 403)):
        assert (
            api.put(f"/api/v1/alerts/rules/{rule.pk}", body, "application/json", headers=headers).status_code == status
        )
    writer = bearer("operator", "operate")
    changed = api.put(f"/api/v1/alerts/rules/{rule.pk}", body, "application/json", headers=writer).json()
    assert (changed["kind"], changed["webhook_id"], changed["emails"]) == ("run_failed", None, [])
    moved = {"url": "http://127.0.0.1:9/z"}
    assert api.patch(f"/api/v1/alerts/webhooks/{hook.pk}", moved, "application/json", headers=writer).json()["url"] == (
        "http://127.0.0.1:9/z"
    )
    inside = api.patch(
        f"/api/v1/alerts/webhooks/{hook.pk}", {"url": "http://10.0.0.1/"}, "application/json", headers=writer
    )
    assert (inside.status_code, list(inside.json()["error"]["fields"])) == (422, ["url"])
    _, secret = create_token(user=people["operator"], name="cli", scopes=["operate"])

    def cli(*words: str) -> Any:
        out = io.StringIO()
        assert main([*words, "--json"], client=connected(secret), out=out) == 0
        return json.loads(out.getvalue())[0]

    found = cli("alert-rules", "update", str(rule.pk), "--role", "viewer", "--webhook", str(hook.pk))
    assert (found["name"], found["kind"], found["role"], found["webhook_id"]) == (
        "failures", "run_failed", "viewer", hook.pk,
    )  # fmt: skip
    assert cli("webhooks", "update", str(hook.pk), "--name", "lab")["name"] == "lab"
    assert main(["alert-rules", "update", "999", "--role", "viewer"], client=connected(secret), out=io.StringIO()) == 1
