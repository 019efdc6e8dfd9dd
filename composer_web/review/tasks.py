"""Celery tasks of review: thin, idempotent."""

from __future__ import annotations

from typing import Any

from celery import shared_task


@shared_task(name="review.collect_draft", bind=True, max_retries=3, default_retry_delay=5)
def collect_draft(self: Any, *, draft_id: int, **_: Any) -> None:
    from composer_web.review.promoting import CollectFailed, collect

    try:
        collect(draft_id)
    except CollectFailed as error:
        raise self.retry(exc=error) from error
