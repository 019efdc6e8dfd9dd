"""Tokens as the API gives them; secrets only once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from composer_web.accounts.models import ApiToken
from composer_web.api.schemas import Body


class TokenOut(Schema):
    id: int
    name: str
    prefix: str
    scopes: list[str]
    project: str | None = Field(default=None, description="The one project where it is valid")
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None

    @staticmethod
    def resolve_project(token: ApiToken) -> str | None:
        return token.project.slug if token.project else None


class CallerOut(Schema):
    username: str
    role: str = Field(description="In that project; empty: none")
    project: str | None = Field(description="Short name of the project that the request concerns")
    token: TokenOut | None = Field(description="null: a signed-in page")


class TokenIn(Body):
    name: str = Field(min_length=1, max_length=80)
    scopes: list[str] = Field(default=["read"], description="Of read, review, operate, admin")
    days: int = Field(default=90, ge=1, le=365)
    project: str = Field(
        default="", description="Short name of the one project where it is valid; empty for all of yours"
    )


class NewToken(TokenOut):
    secret: str = Field(description="Shown this one time")


class AuditOut(Schema):
    id: int
    at: datetime
    actor_name: str
    via: str = Field(description="page, api, token or system")
    credential: str
    address: str | None
    action: str
    target: str
    detail: dict[str, Any]
    changes: list[dict[str, Any]] = Field(description="Rows that changed: {row, before, after}; {more: N} if cut")
