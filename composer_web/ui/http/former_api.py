"""Addresses that saved views had in release 0.1, one for each list. Removed after release 0.2."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status
from pydantic import Field

from composer_web.api.auth import caller
from composer_web.api.schemas import Body, ErrorOut
from composer_web.ui import saved_views
from composer_web.ui.http.api import ViewOut
from composer_web.ui.models import ListName


class FormerViewIn(Body):
    name: str = Field(min_length=1, max_length=saved_views.LONGEST_NAME)
    query: str = Field(default="", max_length=saved_views.LONGEST_QUERY)
    shared: bool = False


def former(table: ListName) -> Router:
    """Saved views of one list: list, save, delete."""
    router = Router()
    operation = f"{__name__}.{table}.{{}}".format  # the functions of two lists have one name

    @router.get(
        "",
        response=list[ViewOut],
        deprecated=True,
        operation_id=operation("list_views"),
        summary="Saved views of this list: see /views",
    )
    def list_views(request: HttpRequest) -> Any:
        return list(saved_views.views_of(caller(request), table))

    @router.post(
        "",
        response={201: ViewOut, 422: ErrorOut},
        deprecated=True,
        operation_id=operation("create_view"),
        summary="Save a view: see /views",
    )
    def create_view(request: HttpRequest, payload: FormerViewIn) -> Any:
        return Status(201, saved_views.save(**payload.model_dump(), table=table, owner=caller(request)))

    @router.delete(
        "/{view_id}",
        response={204: None, 404: ErrorOut},
        deprecated=True,
        operation_id=operation("delete_view"),
        summary="Delete a view: see /views",
    )
    def delete_view(request: HttpRequest, view_id: int) -> Any:
        saved_views.delete(pk=view_id, actor=caller(request))
        return Status(204, None)

    return router
