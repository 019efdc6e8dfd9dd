"""Celery tasks of policies: thin, idempotent, called by name with keyword arguments."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from composer_web.policies import carrying

log = logging.getLogger(__name__)


@shared_task(name="policies.measure")
def measure(*, order_id: int, **_: Any) -> None:
    """Idempotent."""
    log.info("measurement %d: %s", order_id, carrying.carry_out(order_id))
