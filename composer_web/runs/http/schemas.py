"""API schemas of runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body
from composer_web.core.detectors import Found
from composer_web.rollouts.selectors import group_counts, verdict_counts
from composer_web.runs.charts.layouts import MAX_PANELS, PanelSpec, Scope
from composer_web.runs.detectors import insights
from composer_web.runs.launch.launch_schemas import DerivedOut
from composer_web.runs.selectors import eta_seconds
from composer_web.runs.training.waiting import waits_for


class RunOut(Schema):
    """A run as in the runs table."""

    id: int
    name: str
    kind: str
    state: str
    step: int
    steps_total: int
    policy_version: int
    phase: str
    seed: int
    policy_in: str
    policy_in_version: int
    policy_out: str | None
    parent_id: int | None
    sweep_id: int | None
    start_after_id: int | None = Field(description="Run whose final policy it starts from, once that has finished")
    tags: list[str]
    notes: str
    archived_at: datetime | None
    failure: str
    recoveries: int
    latest: dict[str, float]
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @staticmethod
    def resolve_policy_in(run: Any) -> str:
        return run.policy_in.name

    @staticmethod
    def resolve_policy_out(run: Any) -> str | None:
        return run.policy_out.name if run.policy_out else None

    @staticmethod
    def resolve_created_by(run: Any) -> str | None:
        return run.created_by.username if run.created_by else None


class InsightOut(Schema):
    key: str = Field(description="Name of the detector, such as zero-advantage or idle-trainer")
    level: str = Field(description="error, warning or info")
    title: str
    message: str
    remedy: str
    url: str = Field(description="Page of the cause")

    @classmethod
    def of(cls, found: Found) -> InsightOut:
        one = found.insight
        level = insights.LEVELS[found.detector.severity]
        return cls(
            key=found.detector.name, level=level, title=one.title, message=one.message, remedy=one.remedy, url=one.url
        )


class TransitionOut(Schema):
    from_state: str
    to_state: str
    actor: str
    reason: str
    at: datetime


class RunDetail(RunOut):
    config: dict[str, Any]
    derived: list[DerivedOut] = Field(description="Settings that were automatic, with their values and why")
    code_version: str
    eta_seconds: float | None
    waits_for: str = Field(description="What it waits for: a worker of its pool, a quota, a batch; empty for nothing")
    rollouts: dict[str, int] = Field(description="dispatched = passed + failed + infra_error + open")
    groups: dict[str, int]
    transitions: list[TransitionOut]

    @staticmethod
    def resolve_eta_seconds(run: Any) -> float | None:
        return eta_seconds(run)

    @staticmethod
    def resolve_waits_for(run: Any) -> str:
        return waits_for(run)

    @staticmethod
    def resolve_rollouts(run: Any) -> dict[str, int]:
        return verdict_counts(run=run)

    @staticmethod
    def resolve_groups(run: Any) -> dict[str, int]:
        return group_counts(run)

    @staticmethod
    def resolve_transitions(run: Any) -> list[Any]:
        return list(run.transitions.all())


class EventOut(Schema):
    id: int
    at: datetime
    kind: str
    level: str
    step: int | None
    message: str
    data: dict[str, Any]


class LogOut(Schema):
    id: int
    at: datetime
    process: str
    level: str
    logger: str
    message: str
    dropped: int = Field(description="Lines before it that were dropped")


class BucketOut(Schema):
    first: int
    last: int
    low: float
    high: float
    value: float
    count: int
    x: float = Field(description="Where `value` lies on the axis: its step, seconds since the start, or tokens trained")


class MetricsOut(Schema):
    state: str
    step: int
    updated_at: datetime | None
    names: list[str]
    series: dict[str, list[BucketOut]]


class PresetOut(Schema):
    key: str
    title: str
    description: str
    config: dict[str, Any]


class Labels(Body):
    """What is left out stays."""

    tags: list[str] | None = Field(default=None, description="All tags that the run has from now on")
    notes: str | None = None


class PanelsIn(Body):
    scope: Scope = Field(
        default="run",
        description="For the run; for all runs of its kind in the project without panels of their own; "
        "or for those of every project without (admins)",
    )
    panels: list[PanelSpec] = Field(min_length=1, max_length=MAX_PANELS)


class PanelsOut(Schema):
    scope: str = Field(description="run, project, installation, or default (built in): what the panels belong to")
    panels: list[PanelSpec]
