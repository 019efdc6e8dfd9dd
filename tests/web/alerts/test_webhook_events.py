"""Webhooks that are told of events: one signed message for each thing that happened, to whoever asked for its kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.alerts import signing
from composer_web.alerts.models import Delivery, Event, Webhook
from composer_web.alerts.rules import services, watching
from composer_web.core.errors import Conflict, UserError
from composer_web.core.models import Outbox
from composer_web.env import env
from composer_web.evals import services as evals
from composer_web.evals.services import create_evaluation
from composer_web.gateway.sessions.canary import watch_canary
from composer_web.policies.models import Policy
from composer_web.policies.promotion import services as promotion
from composer_web.runs.models import Run
from composer_web.runs.services import cancel_run, mark_failed, mark_finished
from composer_web.tasks.models import Suite
from tests.browser.sessions import in_use
from tests.web.alerts.test_alerts import Receiver, again, receiver, visitor
from tests.web.evals.test_evals_promotion import held_out, versions

__all__ = ["held_out", "receiver", "versions"]  # fixtures
pytestmark = pytest.mark.django_db
JSON = {"content_type": "application/json"}


@pytest.fixture
def hook(people: dict[str, User], receiver: Receiver) -> tuple[Webhook, str]:
    """A webhook that is told of everything, and its secret."""
    return services.make_webhook(actor=people["operator"], name="all", url=receiver.url, events=Event.values)


def told(receiver: Receiver, secret: str) -> dict[str, Any]:
    """What the receiver got from the only delivery, after it has checked the signature."""
    row = again(Delivery.objects.get())
    assert (row.state, row.error) == ("sent", "")
    ((headers, body),) = receiver.got
    signing.verify(secret, headers, body)
    found: dict[str, Any] = json.loads(body)
    return found


@pytest.mark.parametrize(
    ("end", "event", "state"),
    [
        (lambda run: mark_finished(run=run), "run.finished", "finished"),
        (lambda run: mark_failed(run=run, cause="out of memory"), "run.failed", "failed"),
        (lambda run: cancel_run(run=run), "run.stopped", "cancelled"),
    ],
)
def test_the_end_of_a_run(
    hook: tuple[Webhook, str],
    receiver: Receiver,
    running: Run,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Run], object],
    event: str,
    state: str,
) -> None:
    monkeypatch.setattr(env(), "public_url", "https://oc.example/")
    end(running)
    found = told(receiver, hook[1])
    assert (found["type"], found["about"], found["run"]) == (event, f"run:{running.pk}", running.pk)
    assert (found["state"], found["step"], found["project"]) == (state, 0, "default")
    assert found["policy"] == f"run-{running.pk}" and found["link"] == f"https://oc.example/runs/{running.pk}/"
    assert ("out of memory" in found["message"]) == (event == "run.failed")


def test_what_did_not_happen_is_not_told(hook: tuple[Webhook, str], running: Run) -> None:
    mark_finished(run=running)
    with pytest.raises(Conflict):
        mark_failed(run=running, cause="too late")
    row = Delivery.objects.get()
    assert row.body["type"] == "run.finished"
    assert Outbox.objects.filter(task="alerts.deliver").count() == 1


def test_the_end_of_an_evaluation(
    hook: tuple[Webhook, str], receiver: Receiver, policy: Policy, held_out: Suite
) -> None:
    made = create_evaluation(policy=policy, version=0, suite=held_out, tasks=2, samples=4)
    evals.mark_running(evaluation=made)
    assert not Delivery.objects.exists()
    evals.mark_finished(evaluation=made, results={"pass1": 0.625, "best": 1.0, "best_of": 4})
    found = told(receiver, hook[1])
    assert (found["type"], found["about"], found["policy"]) == ("evaluation.finished", f"eval:{made.pk}", "base@0")
    assert (found["suite"], found["pass1"], found["best"], found["run"]) == ("held-out", 0.625, 1.0, None)
    assert "62.5%" in found["message"]
    lost = create_evaluation(policy=policy, version=0, suite=held_out, tasks=2, samples=4)
    evals.mark_failed(evaluation=lost, cause="no engine")
    assert Delivery.objects.latest("pk").body["type"] == "evaluation.failed"


def test_promotion_and_the_way_back(hook: tuple[Webhook, str], versions: Policy, people: dict[str, User]) -> None:
    promotion.promote(reference="base@1", actor=people["operator"])
    promotion.canary(reference="base@2", share=0.1)
    promotion.promote(reference="base@2", note="better")
    promotion.rollback(note="worse in use", actor=people["operator"])
    bodies = [row.body for row in Delivery.objects.order_by("pk")]
    assert [(one["type"], one["before"], one["policy"]) for one in bodies] == [
        ("policy.promoted", None, "base@1"),
        ("policy.promoted", "base@1", "base@2"),
        ("policy.rolled_back", "base@2", "base@1"),
    ]
    assert (bodies[2]["by"], bodies[2]["note"], bodies[2]["channel"]) == ("operator", "worse in use", "production")


def test_a_canary_that_its_guard_ends_is_told_outside_and_in_the_product(
    hook: tuple[Webhook, str], receiver: Receiver, versions: Policy, people: dict[str, User]
) -> None:
    rule = services.make_rule(actor=None, name="guards", kind="guard", role="operator")
    promotion.promote(reference="base@1")
    promotion.canary(reference="base@2", share=0.1)
    Delivery.objects.all().delete()
    in_use(people["viewer"], versions, 1, 60, {"calls": 1, "edits": 1})
    in_use(people["viewer"], versions, 2, 60, {"question": True})
    assert watching.look() == 0, "nothing has happened yet"
    ended = watch_canary()
    assert ended is not None and ended.guard and ended.created_by is None
    found = told(receiver, hook[1])
    assert (found["type"], found["about"], found["guard"]) == ("canary.ended", "channel:production", True)
    assert (found["canary"], found["policy"], found["by"]) == ("base@2", "base@1", None)
    assert "ended by its guard: the share of turns that edit fell" in found["message"]
    assert watching.look() == 1
    notice = people["operator"].notices.get()
    assert notice.alert.rule == rule and "turns that edit fell" in notice.alert.message
    assert not people["viewer"].notices.exists()
    promotion.canary(reference="base@2", share=0.1)
    assert watching.look() == 0, "the channel changed again"
    notice.alert.refresh_from_db()
    assert notice.alert.resolved_at is not None
    promotion.end_canary(note="by hand", actor=people["operator"])
    body = Delivery.objects.filter(body__type="canary.ended").latest("pk").body
    assert (body["guard"], body["by"], body["note"]) == (False, "operator", "by hand")
    assert watching.look() == 0, "people know what they did themselves"


def test_alerts_of_all_rules_and_each_once(
    hook: tuple[Webhook, str], people: dict[str, User], receiver: Receiver, running: Run
) -> None:
    services.subscribe(webhook=hook[0], events=["alert.opened"], actor=None)
    other, _ = services.make_webhook(actor=None, name="other", url=receiver.url)
    services.make_rule(actor=None, name="by name", kind="run_failed", webhook=hook[0])
    services.make_rule(actor=None, name="without", kind="run_failed")
    services.make_rule(actor=None, name="of the other", kind="run_failed", webhook=other)
    mark_failed(run=running, cause="out of memory")
    watching.look()
    rows = list(Delivery.objects.filter(alert__isnull=False).order_by("pk"))
    assert sorted((row.body["rule"], str(row.webhook)) for row in rows) == [
        ("by name", "all"), ("of the other", "all"), ("of the other", "other"), ("without", "all"),
    ]  # fmt: skip
    assert {row.body["type"] for row in rows} == {"alert.opened"}
    assert not Delivery.objects.filter(alert=None).exists(), "it is not told of runs any more"


def test_only_who_asked_and_is_switched_on(hook: tuple[Webhook, str], receiver: Receiver, running: Run) -> None:
    services.switch_webhook(webhook=hook[0], active=False, actor=None)
    services.make_webhook(actor=None, name="no events", url=receiver.url)
    services.make_webhook(actor=None, name="another", url=receiver.url, events=["run.failed"])
    mark_finished(run=running)
    assert not Delivery.objects.exists()


def test_events_that_are_none(hook: tuple[Webhook, str], receiver: Receiver) -> None:
    for doing in (
        lambda: services.make_webhook(actor=None, name="x", url=receiver.url, events=["run.started"]),
        lambda: services.subscribe(webhook=hook[0], events=["run.finished", "run"], actor=None),
    ):
        with pytest.raises(UserError, match="there is no event") as caught:
            doing()
        assert caught.value.field == "events"
    hook[0].refresh_from_db()
    assert hook[0].events == Event.values
    row = services.subscribe(webhook=hook[0], events=["run.stopped", "run.failed", "run.failed"], actor=None)
    assert row.events == ["run.failed", "run.stopped"], "each once, in one order"


def test_on_the_page(people: dict[str, User], receiver: Receiver) -> None:
    operator, viewer = visitor(people["operator"]), visitor(people["viewer"])
    posted = {"name": "chat", "url": receiver.url, "events": ["run.failed", "evaluation.finished"]}
    assert operator.post("/alerts/webhooks/", {**posted, "events": ["run.started"]}).status_code == 422
    assert "whsec_" in operator.post("/alerts/webhooks/", posted).content.decode()
    hook = Webhook.objects.get()
    page = operator.get("/alerts/webhooks/").content.decode()
    assert "A run failed, An evaluation finished" in page and page.partition("<main")[2].count(" checked") == 2
    change = f"/alerts/webhooks/{hook.pk}/events/"
    assert viewer.post(change, {"events": []}).status_code == 403
    done = operator.post(change, {"events": ["policy.promoted"]}, follow=True).content.decode()
    assert "is told of 1 kind of events" in done
    hook.refresh_from_db()
    assert hook.events == ["policy.promoted"]
    entry = AuditEntry.objects.get(action="webhook.events", actor=people["operator"])
    assert entry.changes[0]["after"] == {"events": ["policy.promoted"]}
    assert "there is no event" in operator.post(change, {"events": ["x"]}, follow=True).content.decode()
    operator.post(change)
    assert "alerts of rules that name it" in operator.get("/alerts/webhooks/").content.decode()


def test_by_api(receiver: Receiver, bearer: Callable[..., dict[str, str]], running: Run) -> None:
    client, reader, writer = Client(), bearer("viewer"), bearer("operator", "operate")
    wanted = {"name": "ci", "url": receiver.url, "events": ["run.finished"]}
    address = "/api/v1/alerts/webhooks"
    assert (
        client.get(address, headers=reader).status_code
        == client.post(address, wanted, headers=reader, **JSON).status_code
        == 403
    )
    refused = client.post(address, {**wanted, "events": ["run"]}, headers=writer, **JSON)
    assert refused.status_code == 422 and refused.json()["error"]["field"].startswith("events")
    inside = client.post(address, {**wanted, "url": "http://169.254.169.254/"}, headers=writer, **JSON)
    assert (inside.status_code, inside.json()["error"]["field"]) == (422, "url")
    made = client.post(address, wanted, headers=writer, **JSON)
    assert made.status_code == 201, made.content
    secret, number = made.json()["secret"], made.json()["id"]
    (shown,) = client.get(address, headers=writer).json()
    assert (shown["name"], shown["events"], shown["active"]) == ("ci", ["run.finished"], True) and "secret" not in shown
    mark_finished(run=running)
    assert told(receiver, secret)["run"] == running.pk
    changed = client.patch(f"{address}/{number}", {"events": [], "active": False}, headers=writer, **JSON).json()
    assert (changed["events"], changed["active"]) == ([], False)
    assert client.patch(f"{address}/{number}", {"active": True}, headers=writer, **JSON).json()["active"]
    tried = client.post(f"{address}/{number}/test", headers=writer)
    assert (tried.status_code, tried.json()["state"]) == (201, "waiting")
    assert client.patch(f"{address}/999", {"active": True}, headers=writer, **JSON).status_code == 404
