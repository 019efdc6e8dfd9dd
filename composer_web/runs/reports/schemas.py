"""Bodies and answers of the API of reports."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body
from composer_web.runs.reports.blocks import MAX_BLOCKS, Block


class ReportIn(Body):
    title: str = Field(min_length=1, max_length=120)
    description: str = Field(default="", max_length=500)
    blocks: list[Block] = Field(default_factory=list, max_length=MAX_BLOCKS)


class ReportChange(Body):
    """What is left out stays."""

    title: str | None = Field(default=None, min_length=1, max_length=120)
    description: str | None = Field(default=None, max_length=500)
    blocks: list[Block] | None = Field(default=None, max_length=MAX_BLOCKS)
    version: int | None = Field(default=None, description="Refuse the change if the report has another version by now")


class ReportOut(Schema):
    id: int
    title: str
    description: str
    author: str
    version: int
    created_at: datetime
    updated_at: datetime

    @staticmethod
    def resolve_author(report: Any) -> str:
        return report.author.username if report.author else "system"


class ReportDetail(ReportOut):
    blocks: list[Block]
