"""Celery tasks of policies: thin, idempotent, called by name with keyword arguments."""

from __future__ import annotations

import logging
from typing import Any

from composer_web.core.queue.work import task

from composer_web.policies.measurement import measurement_worker

log = logging.getLogger(__name__)


@task("policies.measure", queue="io", lease="measurement:{order_id}", inside=True, long=True)
def measure(*, order_id: int, **_: Any) -> None:
    """Idempotent."""
    log.info("measurement %d: %s", order_id, measurement_worker.carry_out(order_id))
