"""Celery tasks of imports: thin, idempotent, called by name with keyword arguments."""

from __future__ import annotations

import logging
from typing import Any

from composer_web.core.queue.work import task
from composer_web.policies.imports import worker

log = logging.getLogger(__name__)


@task("policies.import", queue="io", lease="policy-import:{import_id}", long=True)
def import_policy(*, import_id: int, **_: Any) -> None:
    """Idempotent."""
    log.info("import %d: %s", import_id, worker.carry_out(import_id))
