"""Alerts: what rules see, whom they tell and how often, and messages outside: signed, guarded, tried again."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import AuditEntry, User
from composer_web.alerts import sending, services, signing, watching
from composer_web.alerts.models import Alert, Delivery, Kind, Notice, Rule, Webhook
from composer_web.core.errors import UserError
from composer_web.core.models import Outbox, WorkerHeartbeat
from composer_web.env import env
from composer_web.runs import metrics
from composer_web.runs.models import Run
from composer_web.runs.services import mark_failed, resume_run

pytestmark = pytest.mark.django_db


def visitor(user: User) -> Client:
    made = Client()
    made.force_login(user)
    return made


def record(run: Run, values: dict[int, float], name: str = "entropy/mean") -> None:
    for step, value in values.items():
        metrics.record(run=run, step=step, values={name: value})


# What rules see


def test_a_metric_raises_tells_once_and_resolves(people: dict[str, User], running: Run) -> None:
    rule = services.make_rule(
        actor=people["operator"], name="flat", kind="metric", metric="entropy/mean", comparison="below", threshold=0.1
    )
    record(running, {1: 0.5})
    assert watching.look() == 0
    record(running, {2: 0.05})
    assert watching.look() == 1
    watching.look()
    alert = Alert.objects.get(rule=rule)
    assert (alert.about, alert.state) == (f"run:{running.pk}", "open")
    assert "entropy/mean of run" in alert.message
    told = Notice.objects.filter(alert=alert)
    assert sorted(told.values_list("user__username", flat=True)) == ["admin", "operator"]  # not viewers
    record(running, {3: 0.4})
    watching.look()
    alert.refresh_from_db()
    assert alert.state == "resolved"
    assert Notice.objects.filter(alert=alert, resolved=True).count() == 2


def test_what_comes_back_soon_tells_nobody(people: dict[str, User], running: Run) -> None:
    rule = services.make_rule(actor=None, name="high", kind="metric", metric="loss", threshold=1.0, quiet_minutes=30)
    for step, value in enumerate((2.0, 0.5, 2.0, 0.5)):
        record(running, {step: value}, "loss")
        watching.look()
    first, second = Alert.objects.filter(rule=rule).order_by("pk")
    assert first.told_at is not None
    assert second.told_at is None
    assert Notice.objects.count() == 4  # two people, beginning and end of the first
    Alert.objects.filter(pk=first.pk).update(told_at=timezone.now() - timedelta(minutes=31))
    record(running, {9: 3.0}, "loss")
    watching.look()
    assert Alert.objects.filter(rule=rule).latest("pk").told_at is not None


@pytest.mark.parametrize(("window", "sees"), [(2, False), (3, True), (5, False)])
def test_the_mean_of_a_window_is_compared(people: dict[str, User], running: Run, window: int, sees: bool) -> None:
    services.make_rule(actor=None, name="mean", kind="metric", metric="m", threshold=1.0, window=window)
    record(running, {1: 5.0, 2: 0.5, 3: 1.0}, "m")  # five points are not there yet
    assert watching.look() == int(sees)


def test_only_runs_of_a_name(people: dict[str, User], running: Run) -> None:
    services.make_rule(actor=None, name="a", kind="metric", metric="m", threshold=1.0, run_name="another")
    services.make_rule(actor=None, name="b", kind="metric", metric="m", threshold=1.0, run_name="SMALL")
    record(running, {1: 3.0}, "m")
    assert watching.look() == 1
    assert Alert.objects.get().rule.name == "b"


def test_a_failed_run(people: dict[str, User], running: Run) -> None:
    services.make_rule(actor=None, name="failed", kind="run_failed")
    assert watching.look() == 0
    mark_failed(run=running, cause="out of memory")
    watching.look()
    alert = Alert.objects.get()
    assert "out of memory" in alert.message
    resume_run(run=running)
    watching.look()
    alert.refresh_from_db()
    assert alert.resolved_at is not None


def test_a_silent_process(people: dict[str, User]) -> None:
    services.make_rule(actor=None, name="gone", kind="worker_gone")
    now = timezone.now()
    row = WorkerHeartbeat.objects.create(name="rollout@a/1", kind="rollout", pid=1, started_at=now, beat_at=now)
    assert watching.look() == 0
    row.beat_at = now - timedelta(seconds=60)
    row.save()
    watching.look()
    assert Alert.objects.get().about == "worker:rollout@a/1"


def test_a_rule_says_what_is_wrong_with_it(people: dict[str, User]) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": "metric"}, "metric"),
        ({"kind": "infra_share", "threshold": 2.0}, "threshold"),
        ({"kind": "metric", "metric": "m", "threshold": float("inf")}, "threshold"),
        ({"kind": "run_failed", "emails": ["not one"]}, "emails"),
        ({"kind": "run_failed", "emails": ["a@b.example\nbcc: c@d.example"]}, "emails"),
        ({"kind": "nothing"}, "kind"),
        ({"kind": "run_failed", "role": "king"}, "role"),
    ]
    for fields, field in wrong:
        with pytest.raises(UserError) as caught:
            services.make_rule(actor=None, name="x", **fields)
        assert caught.value.field == field, fields
    assert not Rule.objects.exists()


# Messages outside


class Receiver:
    """A real receiver on the loopback; `answers` are the statuses it gives, the last one for ever."""

    def __init__(self) -> None:
        self.answers, self.got = [200], list[tuple[dict[str, str], bytes]]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    monkeypatch.setattr(env(), "webhook_hosts", f"127.0.0.1:{made.port}")
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join(timeout=10)


def again(row: Delivery) -> Delivery:
    """The next try, as if its pause were over."""
    Delivery.objects.filter(pk=row.pk).update(due_at=timezone.now() - timedelta(seconds=1))
    sending.deliver(delivery_id=row.pk)
    row.refresh_from_db()
    return row


def test_a_webhook_gets_a_signed_message_once(people: dict[str, User], receiver: Receiver, running: Run) -> None:
    hook, secret = services.make_webhook(actor=people["operator"], name="chat", url=receiver.url)
    assert secret not in str(list(Webhook.objects.values()))
    assert secret not in str(list(AuditEntry.objects.values_list("detail", "changes")))
    services.make_rule(actor=None, name="failed", kind="run_failed", webhook=hook)
    mark_failed(run=running, cause="<b>out</b> of memory")
    watching.look()
    row = Delivery.objects.get()
    assert Outbox.objects.filter(task="alerts.deliver", kwargs={"delivery_id": row.pk}).exists()
    sending.deliver(delivery_id=row.pk)
    sending.deliver(delivery_id=row.pk)  # a message that came twice
    row.refresh_from_db()
    assert (row.state, row.status, row.tries) == ("sent", 200, 1)
    ((headers, body),) = receiver.got
    signing.verify(secret, headers, body)
    assert json.loads(body)["message"].endswith("<b>out</b> of memory")
    for change in ({"webhook-id": "msg_0"}, {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1)}):
        with pytest.raises(signing.BadSignature):
            signing.verify(secret, headers | change, body)
    with pytest.raises(signing.BadSignature, match="does not belong"):
        signing.verify(secret, headers, body + b" ")
    with pytest.raises(signing.BadSignature, match="time stamp"):  # a replay
        signing.verify(secret, headers, body, now=int(headers["webhook-timestamp"]) + 301)


def test_a_try_that_fails_is_repeated_with_growing_pauses(people: dict[str, User], receiver: Receiver) -> None:
    hook, _ = services.make_webhook(actor=None, name="chat", url=receiver.url)
    receiver.answers = [500, 503, 200]
    row = services.try_webhook(webhook=hook, actor=None)
    pauses = []
    for _ in range(2):
        row = again(row)
        pauses.append((row.due_at - timezone.now()).total_seconds())
    assert (row.state, row.error, row.status) == ("waiting", "it answered 503", 503)
    assert pauses[0] < 13 < pauses[1] < 73
    sending.deliver(delivery_id=row.pk)  # not yet due
    assert len(receiver.got) == 2
    assert again(row).state == "sent"

    receiver.answers = [500]
    row = services.try_webhook(webhook=hook, actor=None)
    for _ in range(len(sending.PAUSES) + 1):
        row = again(row)
    assert (row.state, row.tries) == ("failed", len(sending.PAUSES) + 1)
    receiver.answers = [200]
    services.repeat(delivery=row, actor=people["operator"])
    assert again(row).state == "sent"
    with pytest.raises(UserError, match="only a failed"):
        services.repeat(delivery=row, actor=None)


def test_redirects_are_not_followed(people: dict[str, User], receiver: Receiver) -> None:
    hook, _ = services.make_webhook(actor=None, name="chat", url=receiver.url)
    receiver.answers = [302]
    row = again(services.try_webhook(webhook=hook, actor=None))
    assert row.state == "failed"
    assert "redirects are not followed" in row.error
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/x",
        "http://localhost:9/x",
        "http://[::1]:9/x",
        "http://[::ffff:127.0.0.1]:9/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.7/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://0.0.0.0:8000/",
        "http://2130706433/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "https://user:secret@example.org/",
        "https://exa mple.org/",
        "https://example.org:99999/",
        "gopher",
    ],
)
def test_addresses_inside_are_refused(people: dict[str, User], url: str) -> None:
    with pytest.raises(UserError) as caught:
        services.make_webhook(actor=None, name="x", url=url)
    assert caught.value.field == "url"
    assert not Webhook.objects.exists()


def test_a_name_that_answers_otherwise_later_reaches_nothing(
    people: dict[str, User], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: public when the webhook is made, the loopback when it is used."""
    answers = ["93.184.215.14", "127.0.0.1"]

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(env(), "webhook_hosts", "")
    hook, _ = services.make_webhook(actor=None, name="x", url=f"http://rebind.example:{receiver.port}/")
    row = again(services.try_webhook(webhook=hook, actor=None))
    assert row.state == "failed"
    assert "private address 127.0.0.1" in row.error
    assert receiver.got == []


def test_e_mail(people: dict[str, User], running: Run, settings: Any) -> None:
    services.make_rule(actor=None, name="failed", kind="run_failed", emails=["b@example.org", "a@example.org"])
    mark_failed(run=running, cause="out of memory")
    watching.look()
    for row in Delivery.objects.all():
        sending.deliver(delivery_id=row.pk)
    assert sorted(message.to for message in mail.outbox) == [["a@example.org"], ["b@example.org"]]
    assert mail.outbox[0].subject == "failed"
    assert "out of memory" in mail.outbox[0].body
    settings.EMAIL_BACKEND, settings.EMAIL_HOST = "django.core.mail.backends.smtp.EmailBackend", ""
    resume_run(run=running)
    watching.look()
    row = again(Delivery.objects.latest("pk"))
    assert row.state == "failed"
    assert "OPENCOMPOSER_EMAIL_URL" in row.error


# Pages and API


def test_pages(people: dict[str, User], running: Run) -> None:
    operator, viewer = visitor(people["operator"]), visitor(people["viewer"])
    wanted = {
        "name": "Failed <b>runs</b>",
        "kind": "run_failed",
        "comparison": "above",
        "threshold": "0",
        "window": "1",
    }
    wanted |= {"severity": "high", "quiet_minutes": "5", "role": "viewer", "emails": ""}
    assert viewer.post("/alerts/rules/", wanted).status_code == 403
    assert operator.post("/alerts/rules/", {**wanted, "emails": "nobody"}).status_code == 422
    assert operator.post("/alerts/rules/", wanted)["Location"] == "/alerts/rules/"
    rule = Rule.objects.get()
    assert AuditEntry.objects.filter(action="alert_rule.create", actor=people["operator"]).exists()
    mark_failed(run=running, cause="out of memory")
    watching.look()
    html = viewer.get("/").content.decode()
    assert "Notifications, 1 unread" in html
    assert "out of memory" in viewer.get("/notifications/").content.decode()
    assert "<b>runs" not in viewer.get("/alerts/?state=open").content.decode()
    assert "No alert matches" in viewer.get("/alerts/?state=resolved").content.decode()
    notice = Notice.objects.get(user=people["viewer"])
    assert operator.post(f"/notifications/{notice.pk}/read/").status_code == 404  # somebody else's
    viewer.post("/notifications/read/")
    assert "Notifications, 0 unread" in viewer.get("/notifications/?bell").content.decode()
    for path in ("/alerts/webhooks/", "/alerts/deliveries/"):
        assert viewer.get(path).status_code == 403
        assert operator.get(path).status_code == 200
        assert Client().get(path).status_code == 302
    for path in (f"/alerts/rules/{rule.pk}/off/", f"/alerts/rules/{rule.pk}/remove/"):
        assert viewer.post(path).status_code == 403
        assert operator.get(path).status_code == 405
        assert operator.post(path).status_code == 302
    assert not Rule.objects.exists()
    assert operator.post("/alerts/rules/999/off/").status_code == 404


def test_the_secret_of_a_webhook_is_shown_once(people: dict[str, User], receiver: Receiver) -> None:
    operator = visitor(people["operator"])
    answer = operator.post("/alerts/webhooks/", {"name": "chat", "url": receiver.url})
    assert "whsec_" in answer.content.decode()
    assert answer["Cache-Control"] == "no-store"
    assert "whsec_" not in operator.get("/alerts/webhooks/").content.decode()
    hook = Webhook.objects.get()
    assert operator.post(f"/alerts/webhooks/{hook.pk}/test/")["Location"] == "/alerts/deliveries/"
    assert again(Delivery.objects.get()).state == "sent"
    operator.post(f"/alerts/webhooks/{hook.pk}/off/")
    assert again(services.try_webhook(webhook=hook, actor=None)).error == "the webhook is switched off"
    assert "switched off" in operator.get("/alerts/deliveries/").content.decode()


def test_api(people: dict[str, User], running: Run, bearer: Callable[..., dict[str, str]]) -> None:
    client, reader, writer = Client(), bearer("viewer"), bearer("operator", "operate")
    rule = {"name": "failed", "kind": "run_failed"}
    post = {"content_type": "application/json"}
    assert client.post("/api/v1/alerts/rules", rule, headers=reader, **post).status_code == 403
    made = client.post("/api/v1/alerts/rules", rule, headers=writer, **post)
    assert made.status_code == 201, made.content
    assert client.post("/api/v1/alerts/rules", rule, headers=writer, **post).status_code == 422  # the name is taken
    mark_failed(run=running, cause="out of memory")
    watching.look()
    (alert,) = client.get("/api/v1/alerts?state=open", headers=reader).json()["items"]
    assert alert["about"] == f"run:{running.pk}"
    assert client.get("/api/v1/alerts?state=odd", headers=reader).status_code == 422
    assert client.get("/api/v1/alerts/deliveries", headers=reader).status_code == 403
    number = made.json()["id"]
    assert client.post(f"/api/v1/alerts/rules/{number}/off", headers=writer).json()["active"] is False
    assert client.get("/api/v1/alerts?state=open", headers=reader).json()["items"] == []
    assert client.delete(f"/api/v1/alerts/rules/{number}", headers=writer).status_code == 204
    assert client.get("/api/v1/alerts").status_code == 401


def test_every_kind_is_watched() -> None:
    assert set(watching.WATCHERS) == set(Kind)
