"""Stored files of a run as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from composer_web.runs.deletion_models import FileKind
from composer_web.runs.files.services import Plan


class FilesOfKind(Schema):
    """Files of one kind, and what a deletion with the given options would take away."""

    kind: FileKind
    items: int = Field(description="Checkpoints, weight versions or trajectories that are there")
    bytes: int
    deleted: int = Field(description="Of the items, those that a deletion would take away")
    freed: int = Field(description="Bytes that it would free")
    kept: dict[str, int] = Field(description="Reason → items that it would keep")
    estimated: bool = Field(description="The bytes are estimated from a sample of the groups")
    refused: str = Field(description="Why it would be refused now, with the remedy; empty: it would not")
    problem: str = Field(description="Why the files could not be counted; empty: they were")

    @classmethod
    def of(cls, plan: Plan) -> FilesOfKind:
        found = plan.amount
        return cls(
            kind=FileKind(plan.kind),
            items=found.items,
            bytes=found.bytes,
            deleted=found.deleted,
            freed=found.freed,
            kept=found.kept,
            estimated=found.estimated,
            refused=plan.refused,
            problem=plan.problem,
        )


class FileDeletionOut(Schema):
    id: int
    kind: FileKind
    final: bool = Field(description="With the newest checkpoint")
    annotated: bool = Field(description="With trajectories that people annotated or labelled")
    state: str = Field(description="waiting, running, done, stopped")
    items: int = Field(description="Deleted so far")
    bytes: int = Field(description="What these took")
    cause: str = Field(description="Why it stopped, or why it is being tried again")
    by: str = Field(description="Who asked for it; retention: the days of trajectories were over")
    created_at: datetime
    finished_at: datetime | None


class FilesOut(Schema):
    files: list[FilesOfKind]
    deletions: list[FileDeletionOut] = Field(description="Newest first")

    @classmethod
    def of(cls, plans: list[Plan], deletions: Any) -> dict[str, Any]:
        return {"files": [FilesOfKind.of(plan) for plan in plans], "deletions": list(deletions)}
