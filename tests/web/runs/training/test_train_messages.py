"""Messages about training: which are sent, when they are sent again, and what a run says that it waits for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.celery import app
from composer_web.core.models import Outbox, WorkerHeartbeat
from composer_web.core.queue import leases
from composer_web.env import env
from composer_web.rollouts.dispatch import batches
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.worker.tasks import pump_all
from composer_web.runs import services
from composer_web.runs.models import Run, TrainBatch
from composer_web.runs.train_queues import pool_queues, worker_queue
from composer_web.runs.training.waiting import waits_for
from composer_web.system.prometheus import Installation
from composer_web.system.reconcile import queue_depth, reconcile
from tests.web.cli.support import Cli, data
from tests.web.making import claim, finish, take_run

pytestmark = pytest.mark.django_db

PAST = "2020-01-01T00:00Z"
OWNER = "train@gpu-1/a"


@pytest.fixture(autouse=True)
def broker() -> redis.Redis:
    client = redis.Redis.from_url(env().redis_url)
    client.flushdb()
    return client


def sent(task: str) -> list[tuple[str, dict[str, Any]]]:
    return list(Outbox.objects.filter(task=task).order_by("pk").values_list("queue", "kwargs"))


def worker(name: str, *, pools: list[str], run: int | None = None) -> None:
    now = timezone.now()
    later = now + timedelta(hours=1)  # alive however slow the machine is
    detail = {"pools": pools, "run": run, "queues": []}
    WorkerHeartbeat.objects.create(name=name, kind="train", pid=1, started_at=now, beat_at=later, detail=detail)


def resent() -> list[tuple[str, str]]:
    return [(found.problem, found.action) for found in reconcile() if found.target.startswith("run")]


def in_pool(run: Run, pool: str) -> None:
    Run.objects.filter(pk=run.pk).update(config={**run.config, "pool": pool})
    run.refresh_from_db()


def test_starting_and_resuming_ask_for_a_worker_of_the_pool(draft: Run) -> None:
    in_pool(draft, "h100")
    services.start_run(run=draft)
    services.pause_run(run=draft)
    services.resume_run(run=draft)
    assert sent("train.run") == [("train.h100", {"run_id": draft.pk})] * 2


def test_a_recorded_batch_is_dispatched_to_the_worker_that_holds_the_run(draft: Run) -> None:
    """By whoever makes it possible: here the periodic pump, as the trainer waits."""
    services.start_run(run=draft)
    held = take_run(draft, OWNER)
    assert held is not None
    services.record_version(run=draft, version=0)
    rollouts.pump(run_id=draft.pk)
    batches.want(run=draft, held=held, step=1)
    for group in draft.groups.filter(prompt_index__in=[0, 1]):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    pump_all()
    pump_all()
    assert TrainBatch.objects.filter(run=draft, step=1).count() == 1
    assert sent("train.step") == [("train.worker.gpu-1.a", {"run_id": draft.pk, "step": 1})]
    assert worker_queue(held.owner) == "train.worker.gpu-1.a"


def test_no_batch_is_recorded_that_the_trainer_did_not_ask_for(running: Run) -> None:
    """The choice is made when the step can begin, as late as it may: fresher groups may come until then."""
    rollouts.pump(run_id=running.pk)
    for group in running.groups.all():
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    pump_all()
    assert not TrainBatch.objects.exists()


def test_a_run_without_a_worker_is_asked_for_again_and_not_while_its_message_waits(
    draft: Run, broker: redis.Redis
) -> None:
    services.start_run(run=draft)
    assert resent() == [], "its message is in the outbox"
    Outbox.objects.update(sent_at=PAST)
    app.send_task("train.run", kwargs={"run_id": draft.pk}, queue="train")
    assert resent() == [], "its message waits for a free worker"
    broker.delete("train")
    assert resent() == [("its message was lost (not in the queue, not taken)", "send again")]
    assert resent() == [], "it is in the outbox again"
    held = take_run(draft)
    assert held is not None
    Outbox.objects.update(sent_at=PAST)
    assert resent() == []
    leases.release(held)
    assert resent() == [("no train worker holds it", "send again")]


def test_a_lost_message_is_sent_again_although_others_always_wait_in_the_queue(draft: Run) -> None:
    services.start_run(run=draft)
    Outbox.objects.update(sent_at=PAST)
    app.send_task("train.run", kwargs={"run_id": draft.pk + 1}, queue="train")
    app.send_task("train.run", kwargs={"run_id": draft.pk}, queue="train.h100")
    assert resent() == [("its message was lost (not in the queue, not taken)", "send again")]


def test_a_step_and_a_pause_that_nobody_heard_of_are_sent_again(running: Run) -> None:
    held = leases.take(f"run:{running.pk}", owner=OWNER, seconds=60)
    assert held is not None
    batches.want(run=running, held=held, step=1)
    TrainBatch.objects.create(run=running, step=1, group_ids=[])
    assert resent() == [], "its message is on its way"
    Run.objects.update(wanted_at=PAST)
    assert resent() == [("its trainer has not heard of the batch of step 1", "send again")]
    batches.taken(run=running, step=1)
    Outbox.objects.update(sent_at=PAST)
    assert resent() == [], "it has the batch"
    services.pause_run(run=running)
    assert sent("train.look") == [("train.worker.gpu-1.a", {"run_id": running.pk})]


def test_queues_of_pools_are_made_as_they_are_named_and_no_others(broker: redis.Redis) -> None:
    assert app.amqp.queues["train.h100"].routing_key == "train.h100"
    with pytest.raises(KeyError):
        app.amqp.queues["trian"]
    broker.lpush("train.h100", "waits")
    broker.lpush("train.worker.gpu-1.a", "a worker's own")
    depth = queue_depth()
    assert depth is not None and depth["train.h100"] == 1 and "train.worker.gpu-1.a" not in depth
    assert pool_queues(["train", "rollout", "train.worker.a.b", "train.a100"]) == ["train", "train.a100"]


def test_what_a_run_waits_for_stands_on_its_page_in_the_api_and_on_the_command_line(
    draft: Run, people: dict[str, User], bearer: Callable[..., dict[str, str]], cli: Cli
) -> None:
    in_pool(draft, "h100")
    services.start_run(run=draft)
    client = Client()
    client.force_login(people["viewer"])

    def everywhere(*words: str) -> None:
        draft.refresh_from_db()
        page = client.get(f"/runs/{draft.pk}/").content.decode()
        answer = client.get(f"/api/v1/runs/{draft.pk}", headers=bearer("viewer")).json()["waits_for"]
        shown = data(cli("runs", "get", str(draft.pk), "--json"))["waits_for"]
        assert answer == shown == waits_for(draft)
        for word in words:
            assert word in answer and word in page

    worker("train@a/other", pools=["default"])
    everywhere("worker of the pool h100", "none is alive", "worker -Q train.h100")
    worker("train@gpu-1/b", pools=["h100"], run=77)
    everywhere("free worker of the pool h100", "train@gpu-1/b trains run 77")
    worker(OWNER, pools=["h100"])
    everywhere("A worker of the pool h100 takes it in a moment.")
    held = take_run(draft, OWNER)
    assert held is not None
    services.record_version(run=draft, version=0)
    rollouts.pump(run_id=draft.pk)
    batches.want(run=draft, held=held, step=1)
    everywhere("Step 1 waits for its batch: 0 of 2 groups are accepted, 0 are played, 4 wait for a rollout worker.")
    batches.taken(run=draft, step=1)
    draft.refresh_from_db()
    assert waits_for(draft) == ""
    leases.release(held)
    everywhere("Its train worker was lost.")
    samples = [sample for metric in Installation().collect() for sample in metric.samples]
    gauges = {
        (one.labels["pool"], one.labels["state"]): one.value
        for one in samples
        if one.name == "opencomposer_train_workers"
    }
    assert gauges == {("default", "free"): 1.0, ("h100", "busy"): 1.0, ("h100", "free"): 1.0}
