"""HTTP API of reports."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.runs.reports import services
from composer_web.runs.reports.schemas import ReportChange, ReportDetail, ReportIn, ReportOut

router = Router()


@router.get("", response=Page[ReportOut], summary="List reports")
def list_reports(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(services.reports(), limit=limit, before=before)


@router.post("", response={201: ReportDetail, 422: ErrorOut}, auth=needs("operate"), summary="Create a report")
def create_report(request: HttpRequest, payload: ReportIn) -> Any:
    made = services.create_report(
        title=payload.title,
        description=payload.description,
        blocks=[block.model_dump(mode="json") for block in payload.blocks],
        actor=caller(request),
    )
    return Status(201, made)


@router.get("/{report_id}", response={200: ReportDetail, 404: ErrorOut}, summary="A report with its blocks")
def get_report(request: HttpRequest, report_id: int) -> Any:
    return services.get_report(report_id)


@router.patch(
    "/{report_id}",
    response={200: ReportDetail, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Change a report",
)
def update_report(request: HttpRequest, report_id: int, payload: ReportChange) -> Any:
    return services.update_report(
        report=services.get_report(report_id),
        title=payload.title,
        description=payload.description,
        blocks=None if payload.blocks is None else [block.model_dump(mode="json") for block in payload.blocks],
        version=payload.version,
        actor=caller(request),
    )


@router.delete("/{report_id}", response={204: None, 404: ErrorOut}, auth=needs("operate"), summary="Delete a report")
def delete_report(request: HttpRequest, report_id: int) -> Any:
    services.delete_report(report=services.get_report(report_id), actor=caller(request))
    return Status(204, None)
