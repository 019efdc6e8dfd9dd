"""Exports of rollouts over HTTP: ask, look how far it is, fetch the file."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Router, Schema, Status

from composer_web.api.auth import caller
from composer_web.api.schemas import Body, ErrorOut, file_of
from composer_web.ops.errors import NotFound
from composer_web.ops.streaming import streamed_file
from composer_web.rollouts import exports

router = Router()


class ExportIn(Body):
    format: Literal["csv", "jsonl", "parquet"] = "jsonl"
    query: str = ""
    """Filters as the list's query string has them: `run=12&verdict=failed`."""


class ExportOut(Schema):
    id: int
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


@router.post("", response={201: ExportOut, 422: ErrorOut}, summary="Export rollouts")
def create_export(request: HttpRequest, payload: ExportIn) -> Any:
    """A worker writes the file; ask for the export until its state is `done`, then fetch the file."""
    return Status(201, exports.ask(owner=caller(request), format=payload.format, query=payload.query))


@router.get("/{export_id}", response={200: ExportOut, 404: ErrorOut}, summary="One export")
def get_export(request: HttpRequest, export_id: int) -> Any:
    return exports.of(caller(request), export_id)


@router.get(
    "/{export_id}/file",
    response={200: Any, 404: ErrorOut},
    openapi_extra=file_of(*exports.TYPES.values()),
    summary="The file of an export",
)
def get_file(request: HttpRequest, export_id: int) -> HttpResponseBase:
    export = exports.of(caller(request), export_id)
    path = exports.file_of(export)
    if export.state != "done" or not path.is_file():
        raise NotFound("file of export", f"{export_id} (it is {export.state}, or has expired)")
    return streamed_file(request, path, content_type=exports.TYPES[export.format])
