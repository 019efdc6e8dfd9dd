"""Celery tasks of environments: thin, idempotent."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

log = logging.getLogger(__name__)


@shared_task(name="repositories.build")
def build(*, environment_id: int, **_: Any) -> None:
    """Build one requested environment; a second delivery does nothing."""
    from composer_web.repositories.building import build_environment

    log.info("environment %d: %s", environment_id, build_environment(environment_id))
