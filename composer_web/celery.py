"""The Celery application: short idempotent tasks that move state which lives in Postgres.

Queues, one per kind of worker: control (pump, outbox, reconcile), rollout (a group of a run), eval (a group of an
evaluation), build (environments, controls). Training has none: `manage.py trainer` is a supervised process that takes
a lease on a run. Start rollout workers as
`celery -A composer_web worker -Q rollout,eval --pool=threads -c 4`: each thread only waits; all episodes of a
worker run in one asyncio loop (`composer_web.rollouts.loop`).
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")

from celery import Celery
from celery.signals import beat_init, worker_ready, worker_shutdown, worker_shutting_down
from kombu.entity import Exchange, Queue

from composer_web.env import env

QUEUES = ("control", "rollout", "eval", "build")

# A message that nobody acknowledged for this long is given to another worker. Longer than any task (the group's own
# deadline is shorter), and not relied on: an expired lease makes the reconciler send the work again within seconds.
VISIBILITY_SECONDS = 1800

app = Celery("opencomposer")
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
        "snapshots": {
            "task": "rollouts.collect_snapshots",
            "schedule": 3600.0,
            "options": {"queue": "eval", "expires": 600},
        },
        "canary": {"task": "gateway.watch", "schedule": 60.0, "options": {"queue": "control", "expires": 60}},
        "sessions": {"task": "gateway.expire", "schedule": 3600.0, "options": {"queue": "control", "expires": 600}},
        "prune": {"task": "ops.prune", "schedule": 3600.0, "options": {"queue": "control", "expires": 600}},
    },
    beat_scheduler="celery.beat:Scheduler",  # the schedule is fixed in code: nothing to keep on disk
    timezone="UTC",
)
app.autodiscover_tasks()


_presence: list[Any] = []
"""This worker's heartbeat, once it is ready."""


@worker_ready.connect
def _announce(sender: object = None, **_: object) -> None:
    """A heartbeat row for this worker, named after its queues; a new connection to the broker makes no second one."""
    from composer_web.ops.presence import Presence

    if _presence:
        return
    queues = sorted(getattr(sender, "task_consumer").queues, key=lambda q: q.name)  # noqa: B009 (a Celery consumer)
    names = [queue.name for queue in queues]
    kind = next((name for name in QUEUES if name in names), "worker")
    _presence.append(Presence(kind, detail=lambda: {"queues": names}).start())


@beat_init.connect
def _announce_clock(**_: object) -> None:
    """Without it nothing periodic happens: outbox, pump, reconciler, alerts. One row whatever its process is, so that one
    that was started again is not missed under its old name."""
    from composer_web.ops.presence import Presence

    Presence("clock", name="beat").start()


@worker_shutdown.connect
def _say_goodbye(**_: object) -> None:
    """The row goes with the worker: whoever stopped is not lost."""
    while _presence:
        _presence.pop().stop()


@worker_shutting_down.connect
def _give_groups_back(**_: object) -> None:
    """Groups in progress go back to the queue instead of waiting for their leases to expire."""
    import sys

    if execution := sys.modules.get("composer_web.rollouts.execution"):
        execution.stopping.set()
