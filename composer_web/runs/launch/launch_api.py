"""HTTP API of run templates and sweeps. (Text and dry run: api.py.)"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.runs import selectors
from composer_web.runs.launch import sweeps
from composer_web.runs.launch import templates as kept
from composer_web.runs.launch.launch_schemas import (
    PreviewOut,
    SweepDetail,
    SweepIn,
    SweepOut,
    TemplateChange,
    TemplateIn,
    TemplateOut,
)

templates = Router()
sweep_router = Router()


@templates.get("", response=list[TemplateOut], summary="Configurations that the team starts from")
def list_templates(request: HttpRequest) -> Any:
    return list(kept.templates())


@templates.post(
    "", response={201: TemplateOut, 409: ErrorOut, 422: ErrorOut}, auth=needs("operate"), summary="Keep one"
)
def create_template(request: HttpRequest, payload: TemplateIn) -> Any:
    made = kept.save_template(
        name=payload.name, description=payload.description, config=payload.config, actor=caller(request)
    )
    return Status(201, made)


@templates.get("/{template_id}", response={200: TemplateOut, 404: ErrorOut}, summary="One template")
def get_template(request: HttpRequest, template_id: int) -> Any:
    return kept.get_template(template_id)


@templates.patch(
    "/{template_id}",
    response={200: TemplateOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Change a template",
)
def change_template(request: HttpRequest, template_id: int, payload: TemplateChange) -> Any:
    return kept.change_template(
        template=kept.get_template(template_id),
        name=payload.name,
        description=payload.description,
        config=payload.config,
        actor=caller(request),
    )


@templates.delete(
    "/{template_id}", response={204: None, 404: ErrorOut}, auth=needs("operate"), summary="Delete a template"
)
def delete_template(request: HttpRequest, template_id: int) -> Any:
    """Runs that were started from it stay."""
    kept.delete_template(template=kept.get_template(template_id), actor=caller(request))
    return Status(204, None)


@sweep_router.get("", response=Page[SweepOut], summary="List sweeps")
def list_sweeps(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(sweeps.sweeps(), limit=limit, before=before)


@sweep_router.post(
    "/preview", response={200: PreviewOut, 422: ErrorOut}, summary="Every run that a sweep would make, checked"
)
def preview(request: HttpRequest, payload: SweepIn) -> Any:
    found = sweeps.preview(payload.config, payload.fields, payload.mode)
    return {
        "ok": found.ok,
        "fields": list(found.fields),
        "runs": [
            {
                "name": sweeps.run_name(payload.config.name, found.fields, point.values),
                "values": list(point.values),
                "errors": dict(point.errors),
                "warnings": list(point.warnings),
            }
            for point in found.points
        ],
    }


@sweep_router.post(
    "",
    response={201: SweepOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Make all runs of a sweep",
)
def create_sweep(request: HttpRequest, payload: SweepIn) -> Any:
    """All or none: a run that cannot work refuses the whole sweep."""
    made = sweeps.create_sweep(
        config=payload.config,
        fields=payload.fields,
        mode=payload.mode,
        parent=selectors.get_run(payload.parent) if payload.parent is not None else None,
        start=payload.start,
        actor=caller(request),
    )
    return Status(201, sweeps.get_sweep(made.pk))


@sweep_router.get("/{sweep_id}", response={200: SweepDetail, 404: ErrorOut}, summary="A sweep with its runs")
def get_sweep(request: HttpRequest, sweep_id: int) -> Any:
    found = sweeps.get_sweep(sweep_id)
    return {"sweep": found, "runs": sweeps.members(found)}
