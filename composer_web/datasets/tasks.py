"""Celery tasks of datasets: thin, idempotent, called by name with keyword arguments."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from composer_web.datasets import services

log = logging.getLogger(__name__)


@shared_task(name="datasets.prepare")
def prepare(*, dataset_id: int, **_: Any) -> None:
    """Idempotent."""
    log.info("dataset %d: %s", dataset_id, services.write(dataset_id))
