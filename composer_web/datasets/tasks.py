"""Celery tasks of datasets: short, idempotent, called by name with keyword arguments."""

from __future__ import annotations

import logging
from typing import Any

from composer_web.datasets import services
from composer_web.ops.work import task

log = logging.getLogger(__name__)


@task("datasets.prepare", queue="io", lease="dataset:{dataset_id}", long=True)
def prepare(*, dataset_id: int, **_: Any) -> None:
    """Idempotent."""
    log.info("dataset %d: %s", dataset_id, services.write(dataset_id))
