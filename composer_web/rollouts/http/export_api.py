"""HTTP API of table exports: request, poll, download."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Query, Router, Schema, Status

from composer_web.api.auth import caller
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import Body, ErrorOut, Page, file_of
from composer_web.rollouts.exports import jobs as exports
from composer_web.ui.streaming import streamed_file
from composer_web.ui.table_writers import TYPES

router = Router()


class ExportIn(Body):
    what: Literal[
        "rollouts", "findings", "annotations", "runs", "metrics", "evaluations", "leaderboard", "tasks", "sessions"
    ] = "rollouts"
    format: Literal["csv", "jsonl", "parquet"] = "jsonl"
    query: str = ""
    """Filters as the table's list has them in its address: `run=12&verdict=failed`. Metrics are those of a `run`.
    Sessions are for reviewers: with the scope `review`."""


class ExportOut(Schema):
    id: int
    what: str
    format: str
    query: str
    state: str
    rows: int
    total: int | None
    bytes: int
    cause: str
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None


@router.post("", response={201: ExportOut, 403: ErrorOut, 422: ErrorOut}, summary="Export a table")
def create_export(request: HttpRequest, payload: ExportIn) -> Any:
    """A worker writes the file; ask for the export until its state is `done`, then fetch the file. Where it becomes `failed`
    or `void` there is none, and `cause` says why and what to do."""
    return Status(
        201, exports.ask(owner=caller(request), what=payload.what, format=payload.format, query=payload.query)
    )


@router.get("", response=Page[ExportOut], summary="List one's own exports")
def list_exports(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(exports.own(caller(request)), limit=limit, before=before)


@router.get("/{export_id}", response={200: ExportOut, 404: ErrorOut}, summary="One export")
def get_export(request: HttpRequest, export_id: int) -> Any:
    return exports.of(caller(request), export_id)


@router.get(
    "/{export_id}/file",
    response={200: Any, 403: ErrorOut, 404: ErrorOut},
    openapi_extra=file_of(*TYPES.values()),
    summary="The file of an export",
)
def get_file(request: HttpRequest, export_id: int) -> HttpResponseBase:
    export, file = exports.opened(caller(request), export_id)
    return streamed_file(request, file, content_type=TYPES[export.format])
