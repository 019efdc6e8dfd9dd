"""Celery tasks of datasets and corpora: short, idempotent, called by name with keyword arguments."""

from __future__ import annotations

import logging
from typing import Any

from composer_web.core.queue.work import task
from composer_web.datasets import corpus_services, services

log = logging.getLogger(__name__)


@task("datasets.prepare", queue="io", lease="dataset:{dataset_id}", long=True)
def prepare(*, dataset_id: int, **_: Any) -> None:
    """Idempotent."""
    log.info("dataset %d: %s", dataset_id, services.write(dataset_id))


@task("datasets.prepare_corpus", queue="io", lease="corpus:{corpus_id}", long=True)
def prepare_corpus(*, corpus_id: int, **_: Any) -> None:
    """Idempotent."""
    log.info("corpus %d: %s", corpus_id, corpus_services.write(corpus_id))
