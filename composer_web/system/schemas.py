"""Health as the API gives it."""

from __future__ import annotations

from typing import Any

from ninja import Schema


class CheckOut(Schema):
    name: str
    ok: bool
    message: str
    seconds: float
    detail: dict[str, Any]


class HealthOut(Schema):
    ok: bool
    checks: list[CheckOut]


class Alive(Schema):
    ok: bool
