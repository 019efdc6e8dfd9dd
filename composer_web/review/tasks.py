"""Celery tasks of review: short and idempotent."""

from __future__ import annotations

from typing import Any

from composer_web.core.queue.work import task


@task("review.collect_draft", queue="build", lease="draft:{draft_id}", bind=True, max_retries=3, default_retry_delay=5)
def collect_draft(self: Any, *, draft_id: int, **_: Any) -> None:
    from composer_web.review.task_drafts import CollectFailed, collect

    try:
        collect(draft_id)
    except CollectFailed as error:
        raise self.retry(exc=error) from error
