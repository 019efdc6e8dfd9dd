"""Celery tasks of training. They are short; the trainer process that they start or wake does the work.

`train.run` is acknowledged once the claim is durable: from then on, the lease carries the run. The others are
acknowledged before execution (`acks_late=False`): the reconciler resends a lost one.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.exceptions import Reject

from composer_web.core.queue.work import task
from composer_web.runs.training import train_worker
from composer_web.runs.training.wakes import LOOK

log = logging.getLogger(__name__)


@task("train.run", queue="train", seconds=300)
def run(*, run_id: int, **_: Any) -> None:
    """Claim the run and start its trainer process here. A second delivery finds the lease held and does nothing."""
    try:
        train_worker.here().take(run_id)
    except train_worker.Busy as error:
        raise Reject(str(error), requeue=True) from error  # for another worker of the pool


@task("train.step", queue="train", seconds=60, acks_late=False)
def step(*, run_id: int, step: int, **_: Any) -> None:
    """Wake the run's trainer: the batch of this step is recorded."""
    train_worker.here().wake(run_id, f"step {step}")


@task("train.look", queue="train", seconds=60, acks_late=False)
def look(*, run_id: int, **_: Any) -> None:
    """Wake the run's trainer: the run's state has changed."""
    train_worker.here().wake(run_id, LOOK)
