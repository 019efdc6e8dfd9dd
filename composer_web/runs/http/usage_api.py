"""HTTP API of what the workers of a run use of their machines."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query

from composer_web.api.schemas import ErrorOut
from composer_web.api.usage import Asked, UsageOut, usage_out
from composer_web.core.errors import UserError
from composer_web.runs import selectors
from composer_web.runs.charts import system_metrics
from composer_web.runs.http.panel_api import router  # which it adds to

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
