"""Red lights and what each says to do."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core.models import Lease, Outbox, WorkerHeartbeat
from composer_web.env import env
from composer_web.runs.models import Run
from composer_web.runs.services import create_run, start_run
from composer_web.system import health
from tests.web.forked import ForkedProduct

pytestmark = pytest.mark.django_db

STARTED = """
import os, sys
import django
from celery.bin.celery import celery
django.setup()
from composer_web.runs.training.train_worker import TrainWorker

def accepted(worker):
    print("accepted", flush=True)
    os._exit(0)

TrainWorker.occupy = accepted
celery(sys.argv[1:], prog_name="celery")
"""
"""`celery` with these arguments, up to where a train worker would take its place."""


def test_messages_that_nobody_takes() -> None:
    assert health.check_queues({"build": 0, "control": 0})[0]
    ok, message, _ = health.check_queues({"build": 3, "control": 1})
    assert not ok
    assert "3 in build" in message
    assert "worker -Q build" in message
    now = timezone.now()
    rows = {
        "name": "build@a/1",
        "kind": "build",
        "pid": 1,
        "started_at": now,
        "detail": {"queues": ["build", "control"]},
    }
    worker = WorkerHeartbeat.objects.create(**rows, beat_at=now)
    assert health.check_queues({"build": 3, "control": 1})[0]
    worker.beat_at = now - timedelta(seconds=60)
    worker.save()
    assert not health.check_queues({"build": 3})[0]


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_remedy_for_a_queue_of_training_is_a_command_that_starts_a_train_worker(forked: ForkedProduct) -> None:
    """As typed: Celery's own parser and this product's checks take it."""
    ok, message, _ = health.check_queues({"train": 1, "train.h100": 2})
    assert not ok
    for queue in ("train", "train.h100"):
        command = f"celery -A composer_web worker -Q {queue} --pool threads -c 1"
        assert f"`{command}`" in message
        out, errors = forked.script(STARTED, *command.split()[1:]).communicate(timeout=240)
        assert out.endswith("accepted\n"), errors


def test_each_pool_that_runs_wait_for_needs_a_worker(draft: Run) -> None:
    now = timezone.now()
    for kind, queues in (
        ("control", ["control"]),
        ("io", ["io"]),
        ("rollout", ["rollout"]),
        ("clock", []),
        ("train", ["train", "train.worker.a.gpu-0"]),
    ):
        detail = {"queues": queues}
        WorkerHeartbeat.objects.create(
            name=f"{kind}@a", kind=kind, pid=1, started_at=now, beat_at=now + timedelta(hours=1), detail=detail
        )
    assert health.check_workers()[0]
    other = create_run(config=draft.configuration.model_copy(update={"pool": "h100"}))
    start_run(run=other)
    ok, message, _ = health.check_workers()
    assert not ok
    assert "the pool h100" in message and "`celery -A composer_web worker -Q train.h100 --pool threads -c 1`" in message
    detail = {"queues": ["train.h100"]}
    WorkerHeartbeat.objects.filter(kind="train").update(detail=detail)
    assert health.check_workers()[0]
    start_run(run=draft)
    ok, message, _ = health.check_workers()
    assert not ok and "the pool default" in message, "a worker of another pool does not take it"


def test_a_lease_that_nobody_takes_over() -> None:
    now = timezone.now()
    lease = Lease.objects.create(
        resource="run:7", owner="trainer@a/1", token=1, taken_at=now, heartbeat_at=now, expires_at=now
    )
    assert health.check_leases()[0]  # just expired: the next one is on its way
    lease.expires_at = now - timedelta(seconds=60)
    lease.save()
    ok, message, _ = health.check_leases()
    assert not ok
    assert "run:7 of trainer@a/1" in message
    assert "make up" in message


def test_what_does_not_answer_is_red_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    settings = env()
    monkeypatch.setattr(settings, "redis_url", f"redis://127.0.0.1:{free_port}/0")
    monkeypatch.setattr(settings, "inference_url", f"http://127.0.0.1:{free_port}")
    monkeypatch.setattr(settings, "data", tmp_path)
    monkeypatch.setattr(health, "LOW_DISK_BYTES", 1 << 62)
    red = {check.name: check.message for check in health.checks() if not check.ok}
    assert "does not answer" in red["broker"] and "outbox" in red["broker"]
    assert "OPENCOMPOSER_INFERENCE_URL says where it is" in red["inference"]
    assert f"free some below {tmp_path}" in red["disk"]
    for name in ("clock", "control", "rollout", "train", "`make up`", "celery -A composer_web beat"):
        assert name in red["workers"]


def test_a_message_that_is_not_sent_is_red() -> None:
    assert health.check_outbox()[0]
    row = Outbox.objects.create(task="ops.reconcile", queue="control", due_at=timezone.now())
    assert health.check_outbox()[0]
    Outbox.objects.filter(pk=row.pk).update(due_at=timezone.now() - timedelta(seconds=60))
    ok, message, _ = health.check_outbox()
    assert not ok and "is the control worker up?" in message


def test_every_red_light_is_on_the_page_with_its_remedy(people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["viewer"])
    shown = unescape(client.get("/system/").content.decode())
    red = [check.message for check in health.checks() if not check.ok]
    assert len(red) >= 2, "no worker and no engine run here"
    assert not [message for message in red if message.split(":")[0] not in shown]
