"""The Celery application: short idempotent tasks that move state which lives in Postgres.

Queues: control (outbox, pump, reconciler: short work that everything else waits for), io (exports, datasets,
measurements, deliveries), maintenance (sweeps, audits, contamination checks), rollout (a group of a run), eval (a group of
an evaluation), build (environments, controls), train (a run; `train.<pool>` for another kind of GPU).
`composer_web.core.queue.work` says what each task declares. Start rollout workers as
`celery -A composer_web worker -Q rollout,eval --pool=threads -c 4`: each thread only waits; all episodes of a
worker run in one asyncio loop (`composer_web.rollouts.worker.loop`). Start a train worker as
`celery -A composer_web worker -Q train --pool=threads -c 1`, one a place where a run is trained: it owns the trainer
process (`composer_web.runs.training.train_worker`).
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")
# Django's own checks would import every page and the whole API into each worker and the clock: half of their start.
os.environ.setdefault("CELERY_SKIP_CHECKS", "yes")

from celery import Celery
from celery.app.amqp import AMQP, Queues
from celery.signals import (
    beat_init,
    celeryd_after_setup,
    worker_init,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from kombu.entity import Exchange, Queue

from composer_web.core.queue.queues import QUEUES
from composer_web.env import env
from composer_web.runs.train_queues import is_train_queue, pool_queues

TASK_PACKAGES = (
    "composer_web.alerts.rules",
    "composer_web.evals.results",
    "composer_web.gateway.sessions",
    "composer_web.policies.imports",
    "composer_web.policies.measurement",
    "composer_web.rollouts.worker",
    "composer_web.runs.files",
    "composer_web.runs.training",
)
"""Packages inside apps with a module `tasks`; those of the apps themselves Celery finds in INSTALLED_APPS."""

# A message that nobody acknowledged for this long is given to another worker. Tasks that may take longer hold a lease
# (`composer_web.core.queue.work`).
VISIBILITY_SECONDS = 1800


class KnownQueues(Queues):
    """The queues of the configuration, and those of training, whose pools and workers come and go. No others: a message
    to a misspelt queue is an error."""

    def __missing__(self, name: str) -> Queue:
        if is_train_queue(name):
            return self.add(Queue(name, Exchange(name), routing_key=name))
        raise KeyError(name)


class KnownAMQP(AMQP):
    queues_cls = KnownQueues


app = Celery("opencomposer", amqp=KnownAMQP)
app.conf.update(
    broker_url=env().redis_url,
    result_backend=None,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    task_queues=[Queue(name, Exchange(name), routing_key=name) for name in QUEUES],
    task_default_queue="control",
    task_create_missing_queues=False,
    task_acks_late=True,  # every task of this product is idempotent; tests prove it
    task_retry_on_worker_lost=True,
    task_reject_on_worker_lost=False,  # would start a task that kills its process for ever
    task_annotations={"*": {"max_retries": 2}},
    task_track_started=False,
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=20.0,
    worker_enable_soft_shutdown_on_idle=True,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": VISIBILITY_SECONDS,
        "socket_timeout": 30.0,
        "socket_connect_timeout": 5.0,
        "retry_on_timeout": True,
        "health_check_interval": 10,
    },
    beat_schedule={
        "outbox": {"task": "ops.flush_outbox", "schedule": 2.0, "options": {"queue": "control", "expires": 10}},
        "reconcile": {"task": "ops.reconcile", "schedule": 5.0, "options": {"queue": "control", "expires": 10}},
        "alerts": {"task": "alerts.look", "schedule": 10.0, "options": {"queue": "control", "expires": 20}},
        "pump": {"task": "runs.pump_all", "schedule": 5.0, "options": {"queue": "control", "expires": 10}},
        "engines": {"task": "ops.sample_engines", "schedule": 15.0, "options": {"queue": "control", "expires": 15}},
        "snapshots": {
            "task": "rollouts.collect_snapshots",
            "schedule": 3600.0,
            "options": {"queue": "maintenance", "expires": 600},
        },
        "canary": {"task": "gateway.watch", "schedule": 60.0, "options": {"queue": "control", "expires": 60}},
        "sessions": {"task": "gateway.expire", "schedule": 3600.0, "options": {"queue": "maintenance", "expires": 600}},
        "prune": {"task": "ops.prune", "schedule": 3600.0, "options": {"queue": "maintenance", "expires": 600}},
    },
    beat_scheduler="celery.beat:Scheduler",  # the schedule is fixed in code: nothing to keep on disk
    timezone="UTC",
)
app.set_default()  # of every thread: the outbox sends through `celery.current_app`
app.autodiscover_tasks()
app.autodiscover_tasks(TASK_PACKAGES)


@worker_init.connect
def _keep_a_thread_free(sender: object = None, **_: object) -> None:
    """Long tasks never take the last thread of this worker."""
    from composer_web.core.queue.work import threads

    threads.bound(getattr(sender, "concurrency"))  # noqa: B009 (a Celery worker)


_presence: list[Any] = []
"""This worker's heartbeat and its handover of log lines, once it is ready."""


@worker_ready.connect
def _announce(sender: object = None, **_: object) -> None:
    """A heartbeat row for this worker, named after its queues; a new connection to the broker makes no second one."""
    from composer_web.core.queue.heartbeats import Presence
    from composer_web.rollouts.dispatch.working_for import runs
    from composer_web.runs.training.log_shipping import LogShipper

    if _presence:
        return
    queues = sorted(getattr(sender, "task_consumer").queues, key=lambda q: q.name)  # noqa: B009 (a Celery consumer)
    names = [queue.name for queue in queues]
    kind = next((name for name in QUEUES if name in names), "train" if pool_queues(names) else "worker")
    detail: dict[str, Any] = {"queues": names}
    if pool_queues(names):
        from composer_web.runs.training.gpu_memory import device_room
        from composer_web.runs.training.train_worker import here

        worker, detail = here(), detail | device_room()
        worker.open = partial(_open, sender, worker.queues)
        _presence.append(Presence(kind, name=worker.name, detail=lambda: detail | worker.detail(), runs=runs).start())
        return
    presence = Presence(kind, detail=lambda: detail, runs=runs).start()
    _presence.extend([presence, LogShipper(process=presence.name).start()])


def _open(consumer: Any, queues: list[str], take: bool) -> None:
    """Have the consumer's own thread begin or end to take messages from these queues."""
    change = consumer.add_task_queue if take else consumer.cancel_task_queue
    for queue in queues:
        consumer.call_soon(change, queue)


@celeryd_after_setup.connect
def _become_train_worker(sender: str = "", instance: Any = None, **_: object) -> None:
    """A worker of a pool's queue also consumes one of its own, and takes its place on this machine."""
    pools = pool_queues(app.amqp.queues.consume_from)
    if not pools:
        return
    if "thread" not in str(instance.pool_cls):
        raise SystemExit("error: a worker of the queue train needs `--pool threads`: it owns the trainer process")
    from composer_web.runs.training.train_worker import TrainWorker, install

    worker = install(TrainWorker(sender.partition("@")[0], pools))
    worker.occupy()
    app.amqp.queues.select_add(app.amqp.queues[worker.queue])


@beat_init.connect
def _announce_clock(**_: object) -> None:
    """Without it nothing periodic happens: outbox, pump, reconciler, alerts. One row whatever its process is, so that one
    that was started again is not missed under its old name."""
    from composer_web.core.queue.heartbeats import Presence

    Presence("clock", name="beat").start()


@worker_shutdown.connect
def _say_goodbye(**_: object) -> None:
    """The row goes with the worker: whoever stopped is not lost. A trainer gets the time for its step."""
    if worker := _train_worker():
        worker.join()
        worker.vacate()
    while _presence:
        _presence.pop().stop()


@worker_shutting_down.connect
def _give_groups_back(**_: object) -> None:
    """Groups and runs in progress go back to their queues instead of waiting for their leases to expire."""
    if worker := _train_worker():
        worker.stop()
    if execution := sys.modules.get("composer_web.rollouts.worker.execution"):
        execution.stopping.set()


def _train_worker() -> Any:
    module = sys.modules.get("composer_web.runs.training.train_worker")
    return module.installed() if module else None
