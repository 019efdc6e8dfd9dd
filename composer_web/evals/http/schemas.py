"""Evaluations as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body


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
    effort: str
    interruption: dict[str, Any] | None
    results: dict[str, Any]
    sides: dict[str, Any]
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


class EvaluationIn(Body):
    policy: str = Field(description="name or name@version")
    suite: str
    tasks: int = Field(default=48, ge=1, le=10_000)
    samples: int = Field(default=8, ge=1, le=64)
    temperature: float = Field(default=0.8, gt=0, le=2)
    turns: int | None = Field(default=None, ge=1, le=1000, description="most turns of a rollout; null: derived")
    context_tokens: int | None = Field(
        default=None, ge=256, le=10_000_000, description="most tokens of a rollout; null: derived"
    )
    seed: int = Field(default=0, ge=0)


class ReleaseOut(Schema):
    id: int
    benchmark: str
    number: int
    suite: str
    parent: str | None
    notes: str
    digest: str
    unreviewed: int = Field(description="tasks that two reviewers had not admitted when it was published")
    statistics: dict[str, Any]
    contamination: dict[str, Any] | None
    evaluation_count: int
    created_at: datetime

    @staticmethod
    def resolve_suite(release: Any) -> str:
        return release.suite.name

    @staticmethod
    def resolve_parent(release: Any) -> str | None:
        return str(release.parent) if release.parent else None


class ReleaseIn(Body):
    benchmark: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")
    suite: str
    keep: bool = Field(
        default=False, description="take over the tasks of the release before that no flag speaks against"
    )
    unreviewed: bool = Field(default=False, description="include tasks without the approval of two reviewers")
    notes: str = Field(default="", max_length=2000)


class ReleaseRunIn(Body):
    policy: str = Field(description="name, name@version, or the name of an endpoint")
    samples: int = Field(default=4, ge=1, le=64, description="passes over every task")
    temperature: float = Field(default=0.8, gt=0, le=2)
    effort: str = Field(default="", max_length=12)
    price_input: float | None = Field(
        default=None, ge=0, le=10_000, description="dollars for a million tokens read; null: the endpoint's"
    )
    price_output: float | None = Field(
        default=None, ge=0, le=10_000, description="dollars for a million tokens written; null: the endpoint's"
    )
    turns: int | None = Field(default=None, ge=1, le=1000, description="most turns of a rollout; null: as usual")
    context_tokens: int | None = Field(default=None, ge=256, le=10_000_000, description="most tokens of a rollout")
    interrupt: bool = Field(default=False, description="a person stops every rollout half-way; ranked nowhere")
    grader: str = Field(default="", description="endpoint that grades the side evaluations; empty: rules alone")
    seed: int = Field(default=0, ge=0)


class StandingOut(Schema):
    rank: int
    name: str
    evaluation: int
    score: float
    low: float | None
    high: float | None
    best: float | None
    tokens: float | None
    seconds: float | None
    cost: float | None
    pareto_tokens: bool
    pareto_cost: bool
    sides: dict[str, Any]

    @staticmethod
    def resolve_evaluation(row: Any) -> int:
        return row.evaluation.pk


class CarriedOut(Schema):
    name: str
    tasks: int
    score: float
    low: float
    high: float


class FlagOut(Schema):
    task: str
    flag: str
    why: str
    passed: int
    verdicts: int
    lost: int

    @staticmethod
    def resolve_task(standing: Any) -> str:
        return standing.member.task_version.task.slug


class BoardOut(Schema):
    release: str
    standings: list[StandingOut]
    carried: list[CarriedOut] = Field(description="scores of the release before on the tasks taken over; not ranked")
    flags: list[FlagOut]


class SideOut(Schema):
    group: int
    passed: list[int] = Field(description="ids of rollouts")
    failed: list[int]
    lost: int


class ChangeOut(Schema):
    task: str
    verdict: str
    difference: float
    chance: float = Field(description="of a difference this large between equal policies (Fisher, exact)")
    before: SideOut
    after: SideOut

    @staticmethod
    def resolve_task(change: Any) -> str:
        return str(change.version.task.slug)


class ComparisonOut(Schema):
    before: int
    after: int
    difference: float = Field(description="mean over the tasks that both have")
    low: float
    high: float
    only_one: int
    changes: list[ChangeOut] = Field(description="worst first")

    @staticmethod
    def resolve_before(found: Any) -> int:
        return int(found.before.pk)

    @staticmethod
    def resolve_after(found: Any) -> int:
        return int(found.after.pk)


class EntryOut(Schema):
    evaluation: int
    name: str
    release: str | None
    version: int
    side: SideOut

    @staticmethod
    def resolve_evaluation(entry: Any) -> int:
        return int(entry.evaluation.pk)

    @staticmethod
    def resolve_name(entry: Any) -> str:
        return str(entry.evaluation.title)

    @staticmethod
    def resolve_release(entry: Any) -> str | None:
        return str(entry.evaluation.release) if entry.evaluation.release else None

    @staticmethod
    def resolve_version(entry: Any) -> int:
        return int(entry.number)


class GradeIn(Body):
    grader: str = Field(default="", description="name of an endpoint; empty: rules alone")
