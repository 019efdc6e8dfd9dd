"""Tasks and suites as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body
from composer_web.tasks.models import GenerationState
from sandbox.tasks.spec import TaskSpec


class TaskFilters(Schema):
    """The filters of the tasks page, as an address has them. What they mean is the page's own FilterSet's to say."""

    q: str = ""
    source: str = ""
    category: str = ""
    suite: str = ""
    controls: str = ""
    strength: str = ""
    difficulty: str = ""
    strength_max: float | None = None
    review: str = ""
    mine: str = ""
    split: str = ""
    tag: str = ""
    finding: str = ""
    left_out: str = Field("", description="SUITE:REASON: tasks that cannot join the suite, by the reason of its queue")


class TaskOut(Schema):
    id: int
    slug: str
    source: str
    category: str
    family: str
    newest_number: int | None
    controls_ok: bool | None = Field(description="null: the controls have not run yet")
    test_strength: float | None = Field(
        description="Share of small mutants of the oracle's patch that the hidden tests reject; null: not measured"
    )
    pass_rate: float | None = Field(
        description="Share of rollouts that solved the newest version when it was last measured; null: not measured"
    )
    review: str = Field(description="new, one (review), admitted, rejected, disputed: of the newest version")
    split: str = Field(description="Split that a person chose: train, held-out, benchmark or empty")
    tags: list[str]
    created_at: datetime


class VersionOut(Schema):
    id: int
    number: int
    bundle_hash: str
    controls_ok: bool | None
    controls: dict[str, Any] | None
    test_strength: float | None
    created_at: datetime


class TaskDetail(TaskOut):
    versions: list[VersionOut]
    instruction: str
    spec: dict[str, Any] | None = Field(
        default=None, description="The whole bundle, hidden tests and oracle included: reviewers only"
    )


class SuiteOut(Schema):
    id: int
    name: str
    purpose: str
    description: str
    recipe: dict[str, Any]
    reviewed: bool = Field(description="Only versions that two reviewers admitted may join")
    task_count: int
    valid_count: int
    rejected_count: int
    created_at: datetime


class MemberOut(Schema):
    position: int
    task: str
    version: int
    bundle_hash: str
    controls_ok: bool | None

    @staticmethod
    def resolve_task(member: Any) -> str:
        return member.task_version.task.slug

    @staticmethod
    def resolve_version(member: Any) -> int:
        return member.task_version.number

    @staticmethod
    def resolve_bundle_hash(member: Any) -> str:
        return member.task_version.bundle_hash

    @staticmethod
    def resolve_controls_ok(member: Any) -> bool | None:
        return member.task_version.controls_ok


class MembersOut(Schema):
    items: list[MemberOut]
    next: int | None = Field(default=None, description="`after` of the next page")


class SuiteIn(Body):
    """A suite from whole bundles; their controls are run on the build workers."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,79}$")
    purpose: Literal["train", "held-out", "benchmark"] = "benchmark"
    description: str = Field(default="", max_length=2000)
    tasks: list[TaskSpec] = Field(min_length=1, max_length=500)


class Requested(Schema):
    requested: int


class GeneratorRunOut(Schema):
    id: int
    generator: str
    package: str
    split: str
    seed: int
    tried: int
    kept: int
    share: float = Field(description="Kept of tried")
    per_minute: float = Field(description="Kept a minute")
    rejected: dict[str, int] = Field(description="Reason → drafts")
    operators: dict[str, list[int]] = Field(description="Operator → tried, kept")
    seconds: float
    control_seconds: float
    model_tokens: int
    created_at: datetime


class GenerationRequested(Requested):
    job: int = Field(description="Id of the generation job")


class GenerationJobOut(Schema):
    id: int
    name: str = Field(description="Of the requested suite")
    state: GenerationState
    requested: int = Field(description="Most tasks that it gives")
    kept: int = Field(description="Tasks so far; of a finished job, tasks of its suite")
    tried: int = Field(description="Drafts so far")
    current: str = Field(description="Generator and package under way")
    per_minute: float | None = Field(description="Tasks a minute; null before the first")
    eta_seconds: float | None = Field(description="Until all requested tasks are there at this rate; null when unknown")
    generators: list[str]
    packages: list[str]
    requested_by: str = Field(alias="requested_by.username", default="system")
    requested_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    why: str = Field(description="What kept it from giving tasks")


class DifficultyOut(Schema):
    policy: str
    measured: int
    solved_all: int
    solved_none: int
    pass_rate: float
    turns: float
    thinking_tokens: float


class PrepassIn(Body):
    policy: str = Field(max_length=200, description="`name` or `name@version`")
    samples: int = Field(default=4, ge=1, le=64, description="Rollouts of a task")
    tasks: int = Field(default=0, ge=0, description="0: all")
    seed: int = Field(default=0, ge=0)


class PrepassOut(Schema):
    evaluation: int


class TrajectoryOut(Schema):
    name: str
    not_carried: list[str]


class ImportedOut(Schema):
    suite: str
    tasks: int
    not_carried: list[str] = Field(description="What the format held and a task has no place for")


class RolloutExport(Schema):
    document: Any
    not_carried: list[str] = Field(description="What the format has no place for")
