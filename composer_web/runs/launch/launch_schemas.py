"""API schemas of launching: text, templates, sweeps."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body
from composer_web.runs.launch.config_io import MAX_CHARACTERS
from composer_web.runs.launch.templates import MAX_DESCRIPTION, MAX_NAME
from trainer.config import RunConfig


class TextIn(Body):
    text: str = Field(max_length=MAX_CHARACTERS, description="A configuration in YAML, TOML or JSON")


class TextOut(Schema):
    text: str


class WriteIn(Body):
    config: RunConfig
    format: Literal["yaml", "toml"] = "yaml"


class ParsedOut(Schema):
    config: dict[str, Any] = Field(description="The whole configuration with defaults filled in")


class PlanRowOut(Schema):
    label: str
    value: int
    how: str = Field(description="The arithmetic in words")


class DerivedOut(Schema):
    path: str = Field(description="Dotted path of an automatic setting, for example stage.sampling.max_turns")
    value: int | float | str = Field(description="What it will be")
    reason: str


class EstimateOut(Schema):
    seconds: float = Field(description="Of training, evaluations and the draft head")
    training_seconds: float
    evaluation_seconds: float
    head_seconds: float
    tokens: float | None = Field(description="Of all training rollouts, where rollouts are made")
    dollars: float | None = Field(description="null while OPENCOMPOSER_MACHINE_HOUR_DOLLARS is not set")
    measured_run: int = Field(description="Earlier run that it is scaled from")
    measured_steps: int


class MemoryPart(Schema):
    label: str
    bytes: int
    how: str


class MemoryOut(Schema):
    ranks: int = Field(description="Processes of the trainer, one a GPU")
    trainer_bytes: int = Field(description="Of one rank, at most")
    engine_bytes: int = Field(description="Of an engine that holds all that may be in flight; 0 without rollouts")
    available_bytes: int | None = Field(description="What one rank has at the largest trainer that is up")
    fits: bool | None = Field(description="null while no trainer says what it has")
    trainer: list[MemoryPart]
    engine: list[MemoryPart]


class DifferenceOut(Schema):
    field: str
    parent: str
    value: str


class EngineOut(Schema):
    kind: str = Field(description="embedded, vllm, or router")
    how: str = Field(description="Where it is, or why it was chosen")


class Checked(Schema):
    ok: bool
    warnings: list[str]
    config: dict[str, Any] = Field(description="The whole configuration, automatic settings as numbers")
    derived: list[DerivedOut] = Field(description="Automatic settings, with what they will be and why")
    plan: list[PlanRowOut] = Field(description="What would run")
    estimate: EstimateOut | None = Field(description="null while no run of the kind has been measured")
    memory: MemoryOut | None
    engine: EngineOut | None = Field(description="What will serve its rollouts; null for a run without any")
    differences: list[DifferenceOut] = Field(description="From the run `parent`, where one is named")


class TemplateIn(Body):
    name: str = Field(min_length=1, max_length=MAX_NAME)
    description: str = Field(default="", max_length=MAX_DESCRIPTION)
    config: RunConfig


class TemplateChange(Body):
    """What is left out stays."""

    name: str | None = Field(default=None, min_length=1, max_length=MAX_NAME)
    description: str | None = Field(default=None, max_length=MAX_DESCRIPTION)
    config: RunConfig | None = None


class TemplateOut(Schema):
    id: int
    name: str
    description: str
    config: dict[str, Any]
    created_by: str | None
    created_at: datetime
    updated_at: datetime

    @staticmethod
    def resolve_created_by(one: Any) -> str | None:
        return one.created_by.username if one.created_by else None


class SweepIn(Body):
    config: RunConfig
    fields: dict[str, list[bool | int | float | str | None]] = Field(
        description='Dotted path → values, for example {"stage.optimizer.learning_rate": [0.0001, 0.0003]}'
    )
    mode: Literal["grid", "list"] = "grid"
    parent: int | None = Field(default=None, description="Run that these are told against")
    start: bool = Field(default=False, description="Queue all runs at once")


class PointOut(Schema):
    name: str
    values: list[Any]
    errors: dict[str, str]
    warnings: list[str]


class PreviewOut(Schema):
    ok: bool
    fields: list[str]
    runs: list[PointOut]


class SweepRunOut(Schema):
    id: int
    name: str
    state: str
    step: int
    steps_total: int
    values: list[Any]
    latest: dict[str, float]

    @staticmethod
    def resolve_values(run: Any) -> list[Any]:
        found: list[Any] = run.varied
        return found


class SweepOut(Schema):
    id: int
    name: str
    mode: str
    fields: dict[str, list[Any]] = Field(description="Dotted path → its values")
    runs: int
    live: int
    ended: int
    created_by: str | None
    created_at: datetime

    @staticmethod
    def resolve_fields(sweep: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = sweep.varied
        return found

    @staticmethod
    def resolve_runs(sweep: Any) -> int:
        return int(sweep.run_count)

    @staticmethod
    def resolve_live(sweep: Any) -> int:
        return int(sweep.live_count)

    @staticmethod
    def resolve_ended(sweep: Any) -> int:
        return int(sweep.ended_count)

    @staticmethod
    def resolve_created_by(sweep: Any) -> str | None:
        return sweep.created_by.username if sweep.created_by else None


class SweepDetail(Schema):
    sweep: SweepOut
    runs: list[SweepRunOut]
