"""Whose export is written next, and that blocked work of one kind keeps nothing else waiting."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from django.db import connection, transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import create_user
from composer_web.alerts.models import Delivery, Webhook
from composer_web.celery import app
from composer_web.core.models import Outbox, WorkerHeartbeat
from composer_web.core.queue import leases, outbox
from composer_web.env import env
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from composer_web.system import reconcile
from tests.web.conftest import PASSWORD
from tests.web.forked import ForkedProduct
from tests.web.helpers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(exports, "folder", lambda: tmp_path / "exports")
    return tmp_path


@pytest.fixture(autouse=True)
def broker() -> Iterator[None]:
    """No message of another test."""
    with redis.Redis.from_url(env().redis_url) as client:
        client.flushdb()
        yield
        client.flushdb()


def ask(owner: User) -> int:
    return exports.ask(owner=owner, format="jsonl", query="", what="runs").pk


def person(name: str) -> User:
    return create_user(username=name, password=PASSWORD, role="viewer")


def written() -> list[int]:
    """Exports that are done, in the order in which they were written."""
    return list(Export.objects.filter(state="done").order_by("finished_at").values_list("pk", flat=True))


def test_exports_are_written_in_turn_of_their_owners() -> None:
    ada, bob = person("ada"), person("bob")
    of_ada = [ask(ada) for _ in range(3)]
    of_bob = [ask(bob) for _ in range(2)]
    for _ in range(6):
        exports.write_next()
    assert written() == [of_ada[0], of_bob[0], of_ada[1], of_bob[1], of_ada[2]]


def test_a_person_has_one_export_written_at_a_time() -> None:
    ada, bob = person("ada"), person("bob")
    of_ada, of_bob = [ask(ada) for _ in range(2)], ask(bob)
    another = leases.take(exports.resource(of_ada[0]), owner="another worker", seconds=60)
    assert another is not None
    assert exports.write_next() == "0 rows" and written() == [of_bob]
    assert "none waits" in exports.write_next(), "ada's second waits for her first"
    leases.release(another)
    Outbox.objects.all().delete()
    exports.write_next()
    assert written() == [of_bob, of_ada[0]]
    assert Outbox.objects.filter(task="rollouts.export").exists(), "its end asks for the next of ada's"


def test_the_reconciler_asks_again_for_exports_that_nobody_writes() -> None:
    lost = ask(person("ada"))
    Export.objects.update(created_at=timezone.now() - timedelta(minutes=1))
    with redis.Redis.from_url(env().redis_url) as client:
        client.flushdb()  # the broker lost its messages
    found = {finding.target: finding.action for finding in reconcile.reconcile()}
    assert found == {f"export {lost}": "send again"}
    with redis.Redis.from_url(env().redis_url) as client:
        assert client.llen("io") == 1
    assert not reconcile.reconcile(), "a message waits"


def test_what_lost_its_lease_while_it_was_written_leaves_no_file() -> None:
    pk = ask(person("ada"))
    table = exports.table("runs")
    with pytest.MonkeyPatch.context() as patch:

        def taken(*_: object) -> Iterator[list[dict[str, object]]]:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE ops_lease SET owner = 'another', token = token + 1")
            yield []

        patch.setattr(exports, "table", lambda what: type(table)(**{**vars(table), "pages": taken}))
        assert exports.write(pk).startswith("stopped: ")
    assert Export.objects.get(pk=pk).state == "running", "it is the other worker's"
    assert not list(exports.folder().iterdir())


@pytest.mark.integration
@pytest.mark.timeout(400)
def test_while_exports_stand_still_messages_leave_and_webhooks_are_tried(forked: ForkedProduct) -> None:
    """Real workers. Every export waits for a lock of the database that the test holds."""
    with transaction.atomic():
        webhook = Webhook.objects.create(name="hook", url="http://127.0.0.1:9/", secret="", active=False)
        delivery = Delivery.objects.create(webhook=webhook, body={}, due_at=timezone.now())
        waiting = Outbox.objects.create(task="ops.prune", queue="maintenance", due_at=timezone.now())
    for name in ("ada", "bob", "cyd", "dan"):
        ask(person(name))
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("LOCK TABLE rollouts_export IN ACCESS EXCLUSIVE MODE")
            for name in ("control", "io"):
                forked.start(name)
            eventually(lambda: WorkerHeartbeat.objects.count() == 2, seconds=180, what="both workers")
            for _ in range(4):
                app.send_task("rollouts.export", queue="io")
            app.send_task("alerts.deliver", args=[delivery.pk], queue="io")
            app.send_task("ops.flush_outbox", queue="control")
            eventually(
                lambda: Delivery.objects.get(pk=delivery.pk).state == "failed", seconds=120, what="the webhook's try"
            )
            eventually(
                lambda: Outbox.objects.get(pk=waiting.pk).sent_at is not None, seconds=120, what="the message to leave"
            )

        def all_written() -> bool:
            outbox.flush()  # what beat asks for every second: two exports were put off
            return len(written()) == 4

        eventually(all_written, seconds=120, what="the exports")
    finally:
        forked.end()
