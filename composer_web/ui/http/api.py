"""Saved views of the lists."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from composer_web.api.auth import caller
from composer_web.api.schemas import Body, ErrorOut
from composer_web.ui import saved_views
from composer_web.ui.models import ListName

router = Router()


class ViewIn(Body):
    table: ListName = Field(description="The list")
    name: str = Field(min_length=1, max_length=saved_views.LONGEST_NAME)
    query: str = Field(default="", max_length=saved_views.LONGEST_QUERY, description="Query string of the list")
    shared: bool = False


class ViewOut(Schema):
    id: int
    table: ListName
    name: str
    query: str
    shared: bool
    owner: str

    @staticmethod
    def resolve_owner(view: Any) -> str:
        name: str = view.owner.username
        return name


@router.get("", response=list[ViewOut], summary="Saved views of the lists: yours and shared ones")
def list_views(request: HttpRequest, table: ListName | None = Query(None, description="Only of this list")) -> Any:
    return list(saved_views.views_of(caller(request), table or ""))


@router.post("", response={201: ViewOut, 422: ErrorOut}, summary="Save a view; yours of the same name is replaced")
def create_view(request: HttpRequest, payload: ViewIn) -> Any:
    return Status(201, saved_views.save(**payload.model_dump(), owner=caller(request)))


@router.delete("/{view_id}", response={204: None, 404: ErrorOut}, summary="Delete a view of yours")
def delete_view(request: HttpRequest, view_id: int) -> Any:
    saved_views.delete(pk=view_id, actor=caller(request))
    return Status(204, None)
