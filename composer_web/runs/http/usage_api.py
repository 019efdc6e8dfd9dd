"""HTTP API of what the workers of a run use of their machines, and of what its processes log."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query

from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.api.usage import Asked, UsageOut, usage_out
from composer_web.core.errors import UserError
from composer_web.runs import logs, selectors
from composer_web.runs.charts import system_metrics
from composer_web.runs.http.panel_api import router  # which it adds to
from composer_web.runs.http.schemas import LogOut

__all__ = ["router"]  # with all its operations


@router.get(
    "/{run_id}/system/usage",
    response={200: UsageOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    summary="CPU, memory, network, disk and GPU of the workers of a run over time",
)
def get_usage(request: HttpRequest, run_id: int, asked: Query[Asked]) -> Any:
    """Over the whole run by default."""
    run = selectors.get_run(run_id)
    found = system_metrics.window(run)
    if found is None:
        raise UserError("", f"run {run_id} has not started: no worker has worked for it yet", code="conflict")
    first, last, resolution = asked.range(first=found.first, last=found.last)
    return usage_out(
        found.sources,
        first=first,
        last=last,
        resolution=resolution,
        run=run.pk if found.known else None,
        known=found.known,
    )


@router.get(
    "/{run_id}/logs/lines",
    response={200: Page[LogOut], 404: ErrorOut, 422: ErrorOut},
    summary="Log lines of a run's processes, newest first",
)
def list_logs(
    request: HttpRequest,
    run_id: int,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    q: str = "",
    level: Literal["", "info", "warning", "error"] = "",
    process: str = "",
) -> Any:
    """`q` is a text in the message or the logger's name; `level` includes more severe lines."""
    rows = logs.found(selectors.get_run(run_id), q=q, level=level, process=process)
    return page(rows, limit=limit, before=before)
