"""Evaluations as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field


class EvaluationOut(Schema):
    id: int
    run_id: int | None
    policy: str
    version: int
    suite: str
    phase: str
    state: str
    tasks: int
    samples: int
    temperature: float
    seed: int
    results: dict[str, Any]
    failure: str
    groups_total: int
    groups_done: int
    created_at: datetime
    finished_at: datetime | None

    @staticmethod
    def resolve_policy(evaluation: Any) -> str:
        return evaluation.policy.name

    @staticmethod
    def resolve_suite(evaluation: Any) -> str:
        return evaluation.suite.name


class EvaluationIn(Schema):
    policy: str = Field(description="name or name@version")
    suite: str
    tasks: int = Field(default=48, ge=1, le=10_000)
    samples: int = Field(default=8, ge=1, le=64)
    temperature: float = Field(default=0.8, gt=0, le=2)
    seed: int = Field(default=0, ge=0)
