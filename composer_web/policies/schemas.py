"""Policies as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema

from composer_web.policies.selectors import lineage


class PolicyOut(Schema):
    id: int
    name: str
    description: str
    architecture: dict[str, Any]
    toy: bool
    parent: str | None
    parent_version: int | None
    run_id: int | None
    newest_version: int | None
    checkpoint_count: int
    created_at: datetime

    @staticmethod
    def resolve_parent(policy: Any) -> str | None:
        return policy.parent.name if policy.parent else None

    @staticmethod
    def resolve_run_id(policy: Any) -> int | None:
        run = getattr(policy, "produced_by", None)
        return run.pk if run else None


class CheckpointOut(Schema):
    version: int
    kind: str
    digest: str
    bytes: int
    removed_at: datetime | None
    created_at: datetime


class PolicyDetail(PolicyOut):
    lineage: list[str]
    checkpoints: list[CheckpointOut]

    @staticmethod
    def resolve_lineage(policy: Any) -> list[str]:
        return [ancestor.name for ancestor in lineage(policy)]

    @staticmethod
    def resolve_checkpoints(policy: Any) -> list[Any]:
        return list(policy.checkpoints.all())
