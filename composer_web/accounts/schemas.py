"""Tokens as the API gives them; secrets only once."""

from __future__ import annotations

from datetime import datetime

from ninja import Schema
from pydantic import Field


class TokenOut(Schema):
    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class TokenIn(Schema):
    name: str = Field(min_length=1, max_length=80)
    scopes: list[str] = Field(default=["read"], description="Of read, review, operate, admin")
    days: int = Field(default=90, ge=1, le=365)


class NewToken(TokenOut):
    secret: str = Field(description="Shown this one time")
