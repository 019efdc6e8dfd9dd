"""HTTP API of the panels of a run's charts page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Status

from composer_web.api.auth import caller, needs
from composer_web.api.schemas import ErrorOut
from composer_web.runs import selectors
from composer_web.runs.charts import layouts
from composer_web.runs.charts.panels import headline
from composer_web.runs.http.api import router  # which it adds to
from composer_web.runs.http.schemas import PanelsIn, PanelsOut
from composer_web.runs.models import Run

__all__ = ["router"]  # with all its operations
REFUSED: dict[int, Any] = {404: ErrorOut, 422: ErrorOut}


def _panels(run: Run) -> dict[str, Any]:
    layout, scope = layouts.of_run(run)
    if layout is not None:
        return {"scope": scope, "panels": list(layout.panels)}
    built_in = headline(run.kind, run.latest)
    return {"scope": scope, "panels": [layouts.PanelSpec(title=one.title, keys=one.shown) for one in built_in]}


@router.get(
    "/{run_id}/charts/panels", response={200: PanelsOut, 404: ErrorOut}, summary="Panels of a run's charts page"
)
def get_panels(request: HttpRequest, run_id: int) -> Any:
    return _panels(selectors.get_run(run_id))


@router.put(
    "/{run_id}/charts/panels",
    response={200: PanelsOut, **REFUSED},
    auth=needs("operate"),
    summary="Save panels for a run, for its project, or for the installation",
)
def update_panels(request: HttpRequest, run_id: int, payload: PanelsIn) -> Any:
    run = selectors.get_run(run_id)
    layout = layouts.Layout(panels=tuple(payload.panels))
    layouts.save(run=run, scope=payload.scope, layout=layout, actor=caller(request))
    return _panels(run)


@router.delete(
    "/{run_id}/charts/panels/{scope}",
    response={204: None, 404: ErrorOut},
    auth=needs("operate"),
    summary="Delete the panels of a scope: those behind it are shown again",
)
def delete_panels(request: HttpRequest, run_id: int, scope: layouts.Scope) -> Any:
    layouts.reset(run=selectors.get_run(run_id), scope=scope, actor=caller(request))
    return Status(204, None)
