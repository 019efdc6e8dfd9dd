"""Environments as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field


class EnvironmentOut(Schema):
    id: int
    name: str
    source: str
    digest: str | None
    state: str
    detail: dict[str, Any]
    failure: str
    task_count: int
    created_at: datetime
    updated_at: datetime


class EnvironmentIn(Schema):
    package: str = Field(description="A package pinned in packages.lock")


class LogOut(Schema):
    text: str
