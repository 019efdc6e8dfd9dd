"""Celery tasks of stored files."""

from __future__ import annotations

import logging
from typing import Any

from composer_web.core.queue.work import task
from composer_web.runs.files import deleting

log = logging.getLogger(__name__)


@task("runs.delete_files", queue="maintenance", lease="files:{deletion_id}", long=True)
def delete_files(*, deletion_id: int, **_: Any) -> None:
    """Delete files of an ended run. Idempotent."""
    log.info("deletion %d: %s", deletion_id, deleting.carry_out(deletion_id))
