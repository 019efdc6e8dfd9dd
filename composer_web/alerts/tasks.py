"""Celery tasks of alerts: thin, idempotent."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from composer_web.alerts import sending, watching


@shared_task(name="alerts.look")
def look(**_: Any) -> None:
    watching.look()


@shared_task(name="alerts.deliver")
def deliver(delivery_id: int, **_: Any) -> None:
    sending.deliver(delivery_id=delivery_id)
