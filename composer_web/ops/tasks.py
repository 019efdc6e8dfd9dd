"""Celery tasks of operations: thin, idempotent, started by beat."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from composer_web.ops import outbox, presence


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
