"""Curation as the API gives and takes it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body
from composer_web.tasks.curation.bulk import Action


class ReviewIn(Body):
    decision: Literal["accept", "reject", "withdrawn"]
    note: str = Field(default="", max_length=2000)
    version: int | None = Field(
        default=None, description="Number that was looked at; refused when there is a newer one"
    )
    into: str = Field(default="", max_length=80, description="Suite that the task joins when it is accepted")


class OpinionOut(Schema):
    reviewer: str
    decision: str
    note: str
    created_at: datetime

    @staticmethod
    def resolve_reviewer(one: Any) -> str:
        name: str = one.reviewer.username
        return name


class ReviewsOut(Schema):
    task: str
    version: int
    state: str = Field(description="new, one, admitted, rejected or disputed")
    mine: str = Field(description="accept, reject or empty")
    opinions: list[OpinionOut] | None = Field(description="null until you have given yours")


class NextOut(Schema):
    task: str | None = Field(description="null: nothing waits for you")
    waiting: int = Field(description="Counted up to 1001")


class InstructionIn(Body):
    instruction: str = Field(min_length=1, max_length=20_000)


class MadeOut(Schema):
    task: str
    version: int


class BulkIn(Body):
    action: Action
    value: str = Field(
        default="",
        max_length=2000,
        description="Tags by commas, a split, the name of a suite; nothing for leave_training",
    )
    tasks: list[str] = Field(min_length=1, max_length=5000, description="Slugs")


class BatchOut(Schema):
    id: UUID = Field(description="Undoes it: POST /curation/undo/{id}")
    changed: int
    unchanged: int


class TaskChangeOut(Schema):
    id: int
    batch: UUID
    task: str
    field: str
    before: Any
    after: Any
    actor_name: str
    undoes_id: int | None
    at: datetime

    @staticmethod
    def resolve_task(change: Any) -> str:
        slug: str = change.task.slug
        return slug


class FacetValueOut(Schema):
    value: str
    label: str
    count: int


class FacetOut(Schema):
    name: str = Field(description="The filter of the same name")
    label: str
    values: list[FacetValueOut]
    more: bool


class DiffPartOut(Schema):
    name: str
    diff: str


class DisagreementOut(Schema):
    task: str
    version: int
    reviews: int
    hidden: bool = Field(description="Others' opinions are hidden until you have given yours")
    opinions: list[OpinionOut]


class OpenSuiteIn(Body):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,79}$")
    purpose: Literal["train", "held-out", "benchmark"]
    description: str = Field(default="", max_length=2000)
    reviewed: bool = Field(default=False, description="Only versions that two reviewers admitted may join; for good")
