"""Celery tasks of the gateway: thin, idempotent."""

from __future__ import annotations

from typing import Any

from celery import shared_task


@shared_task(name="gateway.expire")
def expire(**_: Any) -> None:
    """Delete the sessions whose days are over."""
    from composer_web.gateway.recording import expire as delete

    delete()


@shared_task(name="gateway.watch")
def watch(**_: Any) -> None:
    """End a canary whose rates moved."""
    from composer_web.gateway.watching import watch_canary

    watch_canary()
