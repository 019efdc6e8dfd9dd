"""Celery tasks of alerts: short and idempotent."""

from __future__ import annotations

from typing import Any

from composer_web.alerts import sending
from composer_web.alerts.rules import builtin, watching
from composer_web.core.queue.work import task


@task("alerts.look", queue="control", seconds=120)
def look(**_: Any) -> None:
    builtin.ensure()
    watching.look()


@task("alerts.deliver", queue="io", seconds=120)
def deliver(delivery_id: int, **_: Any) -> None:
    sending.deliver(delivery_id=delivery_id)
