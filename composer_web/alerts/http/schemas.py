"""Alerts and rules as the API gives and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import ConfigDict, Field

from composer_web.alerts.models import Event
from composer_web.api.schemas import Body


class AlertOut(Schema):
    id: int
    rule_id: int
    about: str = Field(description="run:12, worker:name or finding:3")
    message: str
    state: str = Field(description="open or resolved")
    opened_at: datetime
    seen_at: datetime
    resolved_at: datetime | None
    told_at: datetime | None = Field(description="Null: it came back within the quiet time, nobody was told")


class RuleIn(Body):
    name: str = Field(min_length=1, max_length=80)
    kind: Literal["metric", "finding", "run_failed", "infra_share", "worker_gone", "guard", "engine_lag", "detector"]
    metric: str = Field(default="", max_length=100)
    detector: str = Field(default="", max_length=40, description="Of the kind detector, for example zero-advantage")
    comparison: Literal["above", "below"] = "above"
    threshold: float = 0.0
    window: int = Field(default=1, ge=1, le=10_000, description="Points whose mean is compared, or minutes for shares")
    severity: Literal["low", "medium", "high"] = "high"
    run_name: str = Field(default="", max_length=80)
    quiet_minutes: int = Field(default=30, ge=0, le=10_080)
    role: Literal["viewer", "reviewer", "operator", "admin"] = "operator"
    emails: list[str] = []
    webhook_id: int | None = None


class RuleOut(RuleIn):
    model_config = ConfigDict(extra="ignore")

    id: int
    active: bool
    builtin: bool = Field(description="Ships with the product: it can be switched off, not deleted")


class NoticeOut(Schema):
    id: int
    alert_id: int
    rule: str
    about: str
    message: str
    resolved: bool = Field(description="Tells of the end of the alert, not of its beginning")
    created_at: datetime
    read_at: datetime | None

    @staticmethod
    def resolve_rule(notice: Any) -> str:
        return str(notice.alert.rule.name)

    @staticmethod
    def resolve_about(notice: Any) -> str:
        return str(notice.alert.about)

    @staticmethod
    def resolve_message(notice: Any) -> str:
        return str(notice.alert.message)


class ReadOut(Schema):
    read: int = Field(description="Notices that were unread")


class WebhookIn(Body):
    name: str = Field(min_length=1, max_length=80)
    url: str = Field(max_length=400, description="https://host/path")
    events: list[Event] = Field(default=[], max_length=50, description="What it is told of without a rule")


class WebhookChange(Body):
    """What is left out stays."""

    name: str | None = Field(default=None, min_length=1, max_length=80)
    url: str | None = Field(default=None, max_length=400, description="What still waits goes there too")
    events: list[Event] | None = Field(default=None, max_length=50, description="These and no others; null keeps them")
    active: bool | None = None


class WebhookOut(Schema):
    id: int
    name: str
    url: str
    events: list[Event]
    active: bool
    created_at: datetime


class NewWebhook(WebhookOut):
    secret: str = Field(description="Shown this one time: it signs every message")


class DeliveryOut(Schema):
    id: int
    alert_id: int | None
    webhook_id: int | None
    email: str
    state: str
    tries: int
    status: int | None
    error: str
    due_at: datetime
    sent_at: datetime | None
