"""The outbox: messages leave after the commit, once, and wait for a broker that is away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
import redis
from django.db import connections, transaction
from kombu import pools

from composer_web.celery import app
from composer_web.core.models import Outbox
from composer_web.core.queue import outbox
from composer_web.env import env

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(env().redis_url)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


def sent(broker: redis.Redis, queue: str = "build") -> list[dict[str, object]]:
    """Keyword arguments of the messages in a queue, oldest first."""
    import base64

    found = []
    for raw in reversed(broker.lrange(queue, 0, -1)):  # type: ignore[arg-type]
        _, kwargs, _ = json.loads(base64.b64decode(json.loads(raw)["body"]))
        found.append(kwargs)
    return found


def test_a_message_leaves_with_its_commit(broker: redis.Redis) -> None:
    with transaction.atomic():
        outbox.enqueue("ops.flush_outbox", {"n": 1}, queue="build")
        assert sent(broker) == []
    assert sent(broker) == [{"n": 1}]
    assert Outbox.objects.get().sent_at is not None


def test_a_rollback_sends_nothing(broker: redis.Redis) -> None:
    with transaction.atomic():
        outbox.enqueue("ops.flush_outbox", {"n": 1}, queue="build")
        transaction.set_rollback(True)
    assert outbox.flush() == 0
    assert sent(broker) == []


def test_the_same_pending_work_is_sent_once(broker: redis.Redis) -> None:
    with transaction.atomic():
        for n in range(3):
            outbox.enqueue("ops.flush_outbox", {"n": n}, queue="build", key="one")
        outbox.enqueue("ops.flush_outbox", {"n": 7}, queue="build", key="other")
    assert sent(broker) == [{"n": 2}, {"n": 7}]
    outbox.enqueue("ops.flush_outbox", {"n": 9}, queue="build", key="one")
    assert sent(broker) == [{"n": 2}, {"n": 7}, {"n": 9}]
    assert not Outbox.objects.filter(sent_at=None).exists()


def test_work_that_is_asked_for_while_equal_work_runs_is_sent_again_after_the_commit(broker: redis.Redis) -> None:
    """Transaction B asks while A's equal message is pending; A's task runs before B commits and cannot see B's rows."""
    outbox.enqueue("ops.flush_outbox", {"n": 1}, queue="build", key="one", delay=3600)
    asked, flushed = threading.Event(), threading.Event()

    def ask() -> None:
        try:
            with transaction.atomic():
                outbox.enqueue("ops.flush_outbox", {"n": 2}, queue="build", key="one")
                asked.set()
                assert flushed.wait(timeout=60)
        finally:
            connections.close_all()

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(timeout=60)
    Outbox.objects.update(due_at="2020-01-01T00:00Z")
    assert outbox.flush() == 1
    assert sent(broker) == [{"n": 1}], "A's message is taken before B commits"
    flushed.set()
    thread.join(timeout=60)
    assert sent(broker) == [{"n": 1}, {"n": 2}], "B's work is sent after its commit"


def test_work_that_is_asked_for_while_its_equal_is_being_sent_is_sent_again(broker: redis.Redis) -> None:
    """As above, with B's insert while a flusher holds A's row."""
    outbox.enqueue("ops.flush_outbox", {"n": 1}, queue="build", key="one", delay=3600)
    Outbox.objects.update(due_at="2020-01-01T00:00Z")

    def ask() -> None:
        try:
            outbox.enqueue("ops.flush_outbox", {"n": 2}, queue="build", key="one")
        finally:
            connections.close_all()

    with transaction.atomic():
        Outbox.objects.select_for_update().get()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(timeout=60)
        assert not thread.is_alive(), "an enqueue never waits for a flusher"
    assert outbox.flush() == 1
    assert sent(broker) == [{"n": 2}, {"n": 1}]


def test_transactions_that_ask_for_equal_work_in_any_order_do_not_block_each_other(broker: redis.Redis) -> None:
    both = threading.Barrier(2)

    def ask(keys: str) -> None:
        try:
            with transaction.atomic():
                for key in keys:
                    outbox.enqueue("ops.flush_outbox", {"key": key}, queue="build", key=key)
                    both.wait(timeout=30)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask, args=(keys,)) for keys in ("ab", "ba")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not both.broken
    assert {str(m["key"]) for m in sent(broker)} == {"a", "b"}


def test_a_delayed_message_waits(broker: redis.Redis) -> None:
    outbox.enqueue("ops.flush_outbox", {"n": 1}, queue="build", delay=3600)
    assert outbox.flush() == 0
    assert sent(broker) == []


def test_flushers_at_the_same_time_never_send_twice(broker: redis.Redis) -> None:
    outbox.enqueue_many([("ops.flush_outbox", {"n": n}, "build", None) for n in range(200)], delay=3600)
    Outbox.objects.update(due_at="2020-01-01T00:00Z")
    barrier = threading.Barrier(4)

    def flush() -> None:
        barrier.wait(timeout=20)
        while outbox.flush(limit=20):
            pass
        connections.close_all()

    threads = [threading.Thread(target=flush) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(int(str(m["n"])) for m in sent(broker)) == list(range(200))


@pytest.mark.integration
def test_a_broker_that_is_away_loses_nothing(broker: redis.Redis, free_port: int) -> None:
    here = app.conf.broker_url
    try:
        _point_at(f"redis://127.0.0.1:{free_port}/0")
        with transaction.atomic():
            outbox.enqueue("ops.flush_outbox", {"n": 1}, queue="build")
        waiting = Outbox.objects.get()
        assert waiting.sent_at is None and waiting.attempts == 1
    finally:
        _point_at(here)
    Outbox.objects.update(due_at="2020-01-01T00:00Z")
    assert outbox.flush() == 1
    assert sent(broker) == [{"n": 1}]


def _point_at(url: str) -> None:
    app.conf.broker_url = app.conf.broker_write_url = app.conf.broker_read_url = url
    # Connections are pooled by address for the whole process.
    app._pool = None
    app.amqp._producer_pool = None
    pools.reset()
