"""Celery tasks of the gateway: short and idempotent."""

from __future__ import annotations

from typing import Any

from composer_web.core.queue.work import task


@task("gateway.expire", queue="maintenance", lease="gateway:expire")
def expire(**_: Any) -> None:
    """Delete sessions past their retention period."""
    from composer_web.gateway.serving.recording import expire as delete

    delete()


@task("gateway.watch", queue="control", seconds=120)
def watch(**_: Any) -> None:
    """End a canary whose rates violate a guard."""
    from composer_web.gateway.sessions.canary import watch_canary

    watch_canary()
