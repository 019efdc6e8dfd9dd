"""What every API answer shares."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ninja import Schema
from pydantic import ConfigDict, Field

T = TypeVar("T")


class Body(Schema):
    """What a request may hold: a field that it does not name is refused, never ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ErrorBody(Schema):
    code: str = Field(
        description="invalid, not_found, conflict, unauthenticated, forbidden, csrf, unavailable, internal"
    )
    message: str = Field(description="What was found and what to do")
    field: str = Field(default="", description="Dotted path of the first wrong field, empty for the whole request")
    fields: dict[str, str] = Field(default_factory=dict, description="Every wrong field and its message")


class ErrorOut(Schema):
    error: ErrorBody


class Page(Schema, Generic[T]):
    """One page of a list, newest first. Pass `next` as `before` for the following page."""

    items: list[T]
    next: int | None = Field(default=None, description="Cursor of the next page; null on the last one")


def file_of(*types: str) -> dict[str, Any]:
    """`openapi_extra` of an operation that answers with a file of one of these content types."""
    content = {name: {"schema": {"type": "string", "format": "binary"}} for name in types}
    return {"responses": {200: {"description": "The file", "content": content}}}
