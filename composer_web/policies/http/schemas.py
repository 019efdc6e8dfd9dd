"""Policies as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import ConfigDict, Field

from composer_web.api.schemas import Body
from composer_web.policies.promotion.gate import GateRule, Outcome
from composer_web.policies.measurement.measuring import Row
from composer_web.policies.selectors import lineage
from trainer.model_import import RendererName
from trainer.model_selection.codebase import CHANGES, COMMITS, ITEMS, MAX_BYTES, WINDOW
from trainer.model_selection.scores import Interval, Questions


class PolicyOut(Schema):
    id: int
    name: str
    kind: str
    description: str
    architecture: dict[str, Any]
    template_problem: str = Field(description="Why its chat template cannot drive episodes; empty: it can")
    facts: dict[str, Any] = Field(description="What it is, needs and lacks, as found at the import (ModelFacts)")
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


class PolicyImportIn(Body):
    """A model that is to become a policy."""

    name: str = Field(min_length=1, max_length=100, description="Name of the policy; an import again replaces its weights")
    path: str = Field(min_length=1, max_length=400, description="Folder, .safetensors or .gguf file on the workers' machine")
    template: str = Field(default="", max_length=1 << 20, description="Chat template: a shipped one's name, or its text")
    renderer: RendererName = Field(default="auto", description="What renders its conversations; auto: the one that fits")
    description: str = Field(default="", max_length=2000)


class PolicyImportOut(Schema):
    id: int
    name: str
    path: str
    renderer: str
    state: str = Field(description="waiting, running, done or failed")
    cause: str = Field(description="Why there is no policy")
    attempts: int
    policy: str | None
    created_by: str | None
    created_at: datetime
    finished_at: datetime | None

    @staticmethod
    def resolve_policy(order: Any) -> str | None:
        return order.policy.name if order.policy else None

    @staticmethod
    def resolve_created_by(order: Any) -> str | None:
        return order.created_by.get_username() if order.created_by else None


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


class MeasurementOut(Schema):
    """One policy version on a codebase; `apart`: its bits a byte less those of the policy that was asked for."""

    policy: str
    codebase: str
    revision: str
    before: str
    text_digest: str
    window: int
    bits_per_byte: Interval
    recent_bits_per_byte: Interval | None
    state_distance: Interval
    state_source: Questions
    tokens_per_byte: float
    bytes_per_second: float
    unknown_tokens: int
    apart: Interval | None
    recent_apart: Interval | None
    created_at: datetime

    @staticmethod
    def of(row: Row) -> MeasurementOut:
        found, apart = row.found, row.apart
        return MeasurementOut(
            **found.model_dump(include=set(MeasurementOut.model_fields) - {"policy"}),
            policy=row.name,
            tokens_per_byte=found.tokens_per_byte,
            apart=apart.bits_per_byte if apart else None,
            recent_apart=apart.recent_bits_per_byte if apart else None,
            created_at=row.row.created_at,
        )


class EndpointFields(Body):
    url: str = Field(max_length=400, description="base of the API, for example https://host/v1")
    effort: str = Field(default="", max_length=12, description="sent as reasoning_effort; empty: not sent")
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    takes_temperature: bool = True
    parameters: dict[str, Any] = Field(default_factory=dict, description="more fields of each request")
    price_input: float = Field(default=0.0, ge=0, le=10_000, description="dollars for a million tokens read")
    price_cached: float | None = Field(default=None, ge=0, le=10_000, description="of those from its cache")
    price_output: float = Field(default=0.0, ge=0, le=10_000, description="dollars for a million tokens written")


class EndpointIn(EndpointFields):
    name: str = Field(pattern=r"^[^@/]{1,100}$")
    model: str = Field(min_length=1, max_length=200)
    key: str = Field(default="", max_length=400, description="stored encrypted, shown to nobody again")
    description: str = Field(default="", max_length=2000)


class EndpointChange(EndpointFields):
    key: str | None = Field(default=None, max_length=400, description="null keeps the key")


class EndpointOut(EndpointFields):
    model_config = ConfigDict(extra="ignore")

    name: str
    model: str
    has_key: bool

    @staticmethod
    def resolve_name(endpoint: Any) -> str:
        return str(endpoint.policy.name)

    @staticmethod
    def resolve_has_key(endpoint: Any) -> bool:
        return bool(endpoint.key)


class GateRules(Body):
    rules: list[GateRule] = Field(max_length=20)


class PromotionIn(Body):
    policy: str = Field(description="name or name@version")
    note: str = Field(default="", max_length=2000)


class CanaryIn(PromotionIn):
    share: float = Field(gt=0, lt=1, description="share of new sessions")


class NoteIn(Body):
    note: str = Field(default="", max_length=2000)


class PromotionOut(Schema):
    id: int
    channel: str
    kind: str
    promoted: str
    canary: str | None
    canary_share: float
    gate: list[Outcome]
    note: str
    guard: bool = Field(description="A guard made it, not a person")
    created_by: str | None
    created_at: datetime

    @staticmethod
    def resolve_promoted(row: Any) -> str:
        return str(row.policy.at(row.version))

    @staticmethod
    def resolve_canary(row: Any) -> str | None:
        return row.canary_policy.at(row.canary_version) if row.canary_policy else None

    @staticmethod
    def resolve_created_by(row: Any) -> str | None:
        return row.created_by.get_username() if row.created_by else None
