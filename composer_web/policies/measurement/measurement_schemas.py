"""Measurements as they are asked for, and as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body
from trainer.model_selection.codebase import CHANGES, COMMITS, ITEMS, MAX_BYTES, WINDOW
from trainer.model_selection.scores import Questions


class Wanted(Body):
    """A measurement that is asked for."""

    codebase: str = Field(max_length=140, description="environment:NAME, repository:NAME or corpus:NAME")
    commits: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description=f"Recent lines: of the last so many; null: {COMMITS} of a repository",
    )
    since: str = Field(default="", max_length=40, description="Recent lines: since a date, for example 2026-01-31")
    window: int = Field(default=WINDOW, ge=2, le=1 << 20, description="Tokens that are seen at a time")
    most_bytes: int = Field(default=MAX_BYTES, ge=1, le=64 << 20, description="Of the codebase that are measured")
    items: int = Field(default=ITEMS, ge=1, le=1000, description="Questions of state tracking")
    changes: int = Field(default=CHANGES, ge=1, le=50, description="Diffs of one question")
    questions: Questions = Field(default="codebase", description="What the questions of state tracking are about")
    device: Literal["auto", "cpu", "cuda"] = "auto"


class MeasurementIn(Wanted):
    version: int | None = Field(default=None, ge=0, description="null: the newest on disk")


class MeasurementOrderOut(Schema):
    id: int
    policy: str
    codebase: str
    state: str = Field(description="waiting, running, done, failed or stopped")
    doing: str = Field(description="What the worker does now")
    share: float = Field(description="Of that, what is done")
    cause: str = Field(description="Why there is no measurement")
    attempts: int
    wanted: dict[str, Any]
    created_by: str | None
    created_at: datetime
    finished_at: datetime | None

    @staticmethod
    def resolve_policy(order: Any) -> str:
        return str(order.policy.at(order.version))

    @staticmethod
    def resolve_created_by(order: Any) -> str | None:
        return order.created_by.get_username() if order.created_by else None
