"""Environments as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body


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


class EnvironmentIn(Body):
    package: str = Field(description="A package pinned in packages.lock")


class RepositoryIn(Body):
    """What a repository is made from. An uploaded archive goes to `/repositories/archive` instead."""

    name: str = Field(default="", max_length=120, description="Its environment's name; made from the location if empty")
    kind: Literal["git", "path", "sdist"]
    location: str = Field(min_length=1, max_length=500, description="https address, path, or package name")
    revision: str = Field(
        default="", max_length=200, description="Branch, tag, commit, or version; the newest if empty"
    )
    token: str = Field(
        default="", max_length=500, description="For a private repository; stored encrypted, never given out"
    )


class RepositoryOut(Schema):
    id: int
    name: str
    kind: str
    location: str
    revision: str
    pin: str
    licence: str
    notes: list[str]
    private: bool
    environment: str
    state: str

    @staticmethod
    def resolve_private(repository: Any) -> bool:
        return bool(repository.token)

    @staticmethod
    def resolve_environment(repository: Any) -> str:
        return str(repository.environment.name)

    @staticmethod
    def resolve_state(repository: Any) -> str:
        return str(repository.environment.state)


class LogOut(Schema):
    text: str
