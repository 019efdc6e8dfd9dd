"""Training is dispatched by Celery: real workers take runs from the queue of a pool, and are killed at any moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from django.db import connections

from composer_web.celery import app
from composer_web.core.models import Lease, WorkerHeartbeat
from composer_web.env import env
from composer_web.policies.models import Policy
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.runs import services
from composer_web.runs.models import Run, RunLog, TrainBatch
from composer_web.system.reconcile import reconcile
from composer_web.tasks.models import Suite
from tests.trainer.stages.memory import small_config
from tests.web.forked import ForkedProduct
from tests.web.helpers import eventually
from tests.web.kills import Chaos, prove
from tests.web.played import play_dispatched
from trainer.config import CheckpointConfig, RunConfig

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
SECONDS = 180


@pytest.fixture
def product(forked: ForkedProduct) -> Iterator[ForkedProduct]:
    with redis.Redis.from_url(env().redis_url) as client:
        client.flushdb()
    yield forked
    forked.end()


@pytest.fixture
def queued(base: Policy, make_suite: Callable[..., Suite]) -> Callable[..., Run]:
    """queued("h100") → a started run of four steps whose pool is h100."""
    make_suite(count=24)

    def make(pool: str = "", steps: int = 4) -> Run:
        stage = small_config(
            steps=steps, eval_suite=None, max_in_flight_groups=4, checkpoint=CheckpointConfig(every_steps=1, keep=2)
        )
        run = services.create_run(config=RunConfig(name=f"in {pool or 'default'}", pool=pool, stage=stage))
        return services.start_run(run=run)

    return make


def drive(*runs: Run, until: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Be rollout workers and the clock until something holds."""

    def holds() -> bool:
        for run in runs:
            run.refresh_from_db()
            assert run.state != "failed", run.failure
            rollouts.pump(run_id=run.pk)
            play_dispatched(run)
        return until()

    eventually(holds, seconds=seconds, what=what)


def waits_for_its_first_batch(run: Run) -> None:
    """Nothing is played meanwhile."""

    def waits() -> bool:
        run.refresh_from_db()
        return run.wanted_step == 1

    eventually(waits, seconds=SECONDS, what="the trainer that waits")


def exactly_once(run: Run, steps: int) -> None:
    """Every batch was trained, no group is in two, and each step's weights are recorded."""
    batches = list(TrainBatch.objects.filter(run=run).order_by("step"))
    assert [batch.step for batch in batches] == list(range(1, steps + 1))
    groups = [pk for batch in batches for pk in batch.group_ids]
    assert len(groups) == len(set(groups)) == 2 * steps
    digests = set(run.trained_steps.values_list("step", "digest"))
    assert sorted(step for step, _ in digests) == list(range(1, steps + 1)), "a replay comes to the same weights"


@pytest.mark.slow
def test_two_workers_train_two_runs_of_two_pools_at_the_same_time(
    product: ForkedProduct, queued: Callable[..., Run]
) -> None:
    """On one data folder; and each of them takes only what its pool is asked for."""
    product.add_train_worker("here", "train", name="here")
    product.add_train_worker("there", "train.h100", name="there")
    one, other = queued(), queued("h100")
    for name in ("here", "there"):
        product.start(name)
    drive(one, other, until=lambda: one.state == other.state == "running", what="both running")
    owners = {lease.resource: lease.owner for lease in Lease.objects.filter(resource__startswith="run:")}
    assert owners[f"run:{one.pk}"].endswith("/here") and owners[f"run:{other.pk}"].endswith("/there")
    drive(one, other, until=lambda: one.state == other.state == "finished", what="the end of both")
    exactly_once(one, 4)
    exactly_once(other, 4)
    assert one.recoveries == other.recoveries == 0


def test_a_killed_worker_and_a_killed_trainer_cost_no_batch(product: ForkedProduct, queued: Callable[..., Run]) -> None:
    run = queued(steps=4)
    product.start("train")
    drive(run, until=lambda: run.step >= 1, what="the first step")
    orphan = product.trainer_pids()
    product.kill("train")
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphan), what="the end of the orphaned trainer")
    drive(run, until=lambda: run.recoveries == 1 and run.step >= 2, what="a step after the worker was killed")
    eventually(lambda: bool(product.trainer_pids()), what="the new trainer")
    for pid in product.trainer_pids():
        os.kill(pid, signal.SIGKILL)
    drive(run, until=lambda: run.recoveries == 2, what="another trainer")
    drive(run, until=lambda: run.state == "finished", what="the end")
    exactly_once(run, 4)


@pytest.mark.slow
def test_kills_at_random_moments_train_every_batch_once(product: ForkedProduct, queued: Callable[..., Run]) -> None:
    """A small part of `make bench NAME=dispatch`: the weights of each step are those of an uninterrupted training."""
    run = queued(steps=8)
    product.start("control")
    product.start("beat")
    product.start("train")
    chaos = Chaos(product, ["train"])
    while chaos.count < 5:
        chaos.play([run], chaos.random.uniform(0.0, 6.0))
        chaos.kill([run])
    drive(run, until=lambda: run.state == "finished", what="the end")
    exactly_once(run, 8)
    proof = prove(run)
    assert (proof.steps, proof.trained_twice, proof.lost) == (8, 0, 0)


def test_a_lost_message_is_sent_again_by_the_reconciler(product: ForkedProduct, queued: Callable[..., Run]) -> None:
    run = queued(steps=2)
    with redis.Redis.from_url(env().redis_url) as client:
        assert client.llen("train") == 1
        client.delete("train")
    product.start("train")
    eventually(lambda: WorkerHeartbeat.objects.filter(kind="train").exists(), seconds=SECONDS, what="the worker")
    Run.objects.filter(pk=run.pk).update(queued_at="2020-01-01T00:00Z")
    age_messages()
    assert [(f.target, f.action) for f in reconcile()] == [(f"run {run.pk}", "send again")]
    waits_for_its_first_batch(run)
    assert app.control.cancel_consumer(own_queue(), reply=True, timeout=30)
    drive(run, until=lambda: TrainBatch.objects.filter(run=run, step=1).exists(), what="the batch")
    with redis.Redis.from_url(env().redis_url) as client:
        eventually(lambda: bool(client.delete(own_queue())), what="its message")
    assert app.control.add_consumer(own_queue(), reply=True, timeout=30)
    age_messages()
    Run.objects.filter(pk=run.pk).update(wanted_at="2020-01-01T00:00Z")
    problem = "its trainer has not heard of the batch of step 1"
    assert [(f.target, f.problem) for f in reconcile()] == [(f"run {run.pk}", problem)]
    drive(run, until=lambda: run.state == "finished", what="the end")
    exactly_once(run, 2)


def own_queue() -> str:
    queues = WorkerHeartbeat.objects.get(kind="train").detail["queues"]
    return next(name for name in queues if name.startswith("train.worker."))


def age_messages() -> None:
    from composer_web.core.models import Outbox

    Outbox.objects.exclude(sent_at=None).update(sent_at="2020-01-01T00:00Z")


def test_pausing_and_cancelling_reach_a_trainer_that_waits(product: ForkedProduct, queued: Callable[..., Run]) -> None:
    """Without the reconciler, and although nothing asks Postgres while it waits."""
    run, next_run = queued(steps=2), queued(steps=2)
    product.start("train")
    waits_for_its_first_batch(run)
    services.pause_run(run=run)
    eventually(lambda: Run.objects.get(pk=run.pk).state == "paused", seconds=SECONDS, what="the pause")
    waits_for_its_first_batch(next_run)
    services.cancel_run(run=next_run)
    eventually(lambda: not product.trainer_pids(), seconds=SECONDS, what="the end of the trainer")
    services.resume_run(run=run)
    drive(run, until=lambda: run.state == "finished", what="the end")
    exactly_once(run, 2)


def test_cancelling_ends_a_trainer_in_the_middle_of_a_step_and_frees_its_memory(
    product: ForkedProduct, queued: Callable[..., Run]
) -> None:
    run = queued()
    product.start("train")
    waits_for_its_first_batch(run)
    (trainer,) = product.trainer_pids(run.pk)
    os.kill(trainer, signal.SIGSTOP)  # as in a step of many minutes: it looks at nothing
    services.cancel_run(run=run)
    eventually(lambda: not product.trainer_pids(run.pk), seconds=10, what="the end of the trainer")
    eventually(
        lambda: not Lease.objects.filter(resource=f"run:{run.pk}").exclude(owner="").exists(), seconds=10, what="it"
    )
    assert Run.objects.get(pk=run.pk).state == "cancelled"


def test_a_worker_that_is_stopped_puts_its_run_back(product: ForkedProduct, queued: Callable[..., Run]) -> None:
    run = queued()
    product.start("train")
    drive(run, until=lambda: run.step >= 1, what="the first step")
    product.terminate("train")
    assert product.running["train"].wait(timeout=SECONDS) == 0
    assert not product.trainer_pids() and not Lease.objects.filter(resource=f"run:{run.pk}").exclude(owner="").exists()
    line = RunLog.objects.filter(run=run, process__startswith="trainer@").earliest("pk")
    assert "begins after step 0" in line.message, "what a trainer logs reaches its run"
    with redis.Redis.from_url(env().redis_url) as client:
        assert client.llen("train") == 1
    product.start("train")
    drive(run, until=lambda: run.state == "finished", what="the end")
    exactly_once(run, 4)


def test_a_second_worker_of_a_name_is_refused_on_one_machine_only(product: ForkedProduct) -> None:
    code = (
        "import socket, sys\n"
        "socket.gethostname = lambda: sys.argv[1]\n"
        "from composer_web.runs.training.train_worker import TrainWorker, PlaceTaken\n"
        "worker = TrainWorker('gpu-0', ['train'])\n"
        "worker.occupy(seconds=0); print('placed', flush=True); sys.stdin.read()"
    )

    first = product.script(code, "a")
    assert first.stdout is not None and first.stdout.readline() == "placed\n"
    other_host, same_host = product.script(code, "b"), product.script(code, "a")
    assert other_host.communicate("", timeout=SECONDS)[0] == "placed\n"
    assert "a train worker named train@a/gpu-0 runs already" in same_host.communicate("", timeout=SECONDS)[1]
    first.communicate("", timeout=SECONDS)


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    yield
    connections.close_all()
