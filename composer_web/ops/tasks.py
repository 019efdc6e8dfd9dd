"""Celery tasks of operations: thin, idempotent, started by beat."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from composer_web.ops import outbox, presence

log = logging.getLogger(__name__)


@shared_task(name="ops.flush_outbox")
def flush_outbox(**_: Any) -> None:
    outbox.flush()


@shared_task(name="ops.reconcile")
def reconcile(**_: Any) -> None:
    from composer_web.ops.reconcile import Busy
    from composer_web.ops.reconcile import reconcile as look

    try:
        look()
    except Busy:
        return  # the other one does the same work


@shared_task(name="ops.prune")
def prune(**_: Any) -> None:
    outbox.prune()
    presence.forget_dead()


@shared_task(name="ops.measure_fidelity")
def measure_fidelity(**_: Any) -> None:
    """Measure this worker's backend; one at a time. What goes wrong is kept and shown on the page."""
    from composer_web.ops import fidelity, leases

    held = leases.take(fidelity.LEASE, owner=leases.identity("fidelity"), seconds=fidelity.MEASURE_SECONDS)
    if held is None:
        return
    try:
        fidelity.measure()
    except fidelity.NotMeasured as error:
        log.warning("fidelity was not measured: %s", error)
    finally:
        leases.release(held)
