"""What every API answer shares."""

from __future__ import annotations

from typing import Generic, TypeVar

from ninja import Schema
from pydantic import Field

T = TypeVar("T")


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


class Created(Schema):
    id: int
