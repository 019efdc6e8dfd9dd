"""Celery tasks of operations: thin, idempotent, started by beat."""

from __future__ import annotations

import logging
from typing import Any

from composer_web.core.queue import heartbeats, outbox, samples
from composer_web.core.queue.work import task
from composer_web.policies.in_use import synchronize
from composer_web.runs import logs

log = logging.getLogger(__name__)


@task("ops.flush_outbox", queue="control", seconds=300)
def flush_outbox(**_: Any) -> None:
    outbox.flush()


@task("ops.reconcile", queue="control", seconds=300)
def reconcile(**_: Any) -> None:
    from composer_web.runs.files.used_checkpoints import uses
    from composer_web.system.reconcile import Busy
    from composer_web.system.reconcile import reconcile as look

    try:
        look()
    except Busy:
        return  # the other one does the same work
    synchronize(uses())


@task("ops.sample_data", queue="maintenance", seconds=600)
def sample_data(**_: Any) -> None:
    from composer_web.system import demo

    demo.sample_data()


@task("ops.sample_engines", queue="control", seconds=60)
def sample_engines(**_: Any) -> None:
    """Record what the inference server and the engines behind it use. Nothing while it does not answer."""
    from composer_web.system import engines

    engines.sample()


@task("ops.prune", queue="maintenance", seconds=600)
def prune(**_: Any) -> None:
    from composer_web.runs.files import retention

    outbox.prune()
    heartbeats.forget_dead()
    samples.prune()
    logs.prune()
    retention.prune()


@task("ops.measure_fidelity", queue="build", lease="fidelity")
def measure_fidelity(**_: Any) -> None:
    """Measure this worker's backend; one at a time. What goes wrong is kept and shown on the page."""
    from composer_web.system import fidelity

    try:
        fidelity.measure()
    except fidelity.NotMeasured as error:
        log.warning("fidelity was not measured: %s", error)
