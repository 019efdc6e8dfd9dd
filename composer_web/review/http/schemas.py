"""Review queues, labels and drafts as the API gives and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body
from composer_web.review.questions import Question


class QueueIn(Body):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,79}$")
    title: str = Field(default="", max_length=200)
    reviewers: int = Field(default=1, ge=1, le=9, description="Independent reviewers of each rollout")
    questions: list[Question] = Field(min_length=1, max_length=12)
    filters: str = Field(
        default="", max_length=2000, description="Query string of GET /rollouts; what it finds is added"
    )
    limit: int = Field(default=200, ge=1, le=5000)


class QueueOut(Schema):
    id: int
    name: str
    title: str
    reviewers: int
    questions: list[dict[str, Any]]
    rollouts: int
    finished: int = Field(description="Rollouts with all their reviewers")
    labels: int
    closed_at: datetime | None
    created_at: datetime

    @staticmethod
    def resolve_questions(queue: Any) -> Any:
        return queue.questions["questions"]


class FillIn(Body):
    filters: str = Field(default="", max_length=2000)
    limit: int = Field(default=200, ge=1, le=5000)


class CountOut(Schema):
    count: int


class LabelIn(Body):
    rollout: int
    answers: dict[str, str | int | list[str]]


class LabelOut(Schema):
    rollout: int
    reviewer: str
    answers: dict[str, Any]
    created_at: datetime

    @staticmethod
    def resolve_rollout(label: Any) -> int:
        number: int = label.item.rollout_id
        return number

    @staticmethod
    def resolve_reviewer(label: Any) -> str:
        name: str = label.reviewer.username
        return name


class NextItemOut(Schema):
    rollout: int | None = Field(description="null: nothing waits for you")
    waiting: int


class AgreementOut(Schema):
    question: str
    text: str
    counts: dict[str, int]
    items: int = Field(description="With two answers or more")
    share: float | None = Field(description="Of these, with one and the same answer")
    alpha: float | None = Field(description="Krippendorff's alpha")
    kappa: float | None = Field(description="Cohen's kappa, mean over pairs of people")


class LabelDisagreementOut(Schema):
    rollout: int
    questions: list[str]
    hidden: bool
    labels: list[LabelOut]


class RewardOut(Schema):
    rollout: int
    value: float = Field(description="Mean over reviewers, 0 to 1")


class ExcludeIn(Body):
    question: str = Field(max_length=40)
    value: str = Field(max_length=40)
    tasks: bool = Field(default=False, description="Set the tasks aside, instead of the rollouts")


class DraftIn(Body):
    rollout: int
    turn: int = Field(ge=0, description="Turns of the session whose changes are kept; 0: before the first")
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$")
    instruction: str = Field(min_length=1, max_length=20_000)
    category: str = Field(default="debug", max_length=20)


class DraftChangeIn(Body):
    instruction: str = Field(min_length=1, max_length=20_000)
    category: str = Field(default="debug", max_length=20)
    verifier: dict[str, Any] | None = Field(default=None, description="null: as it is")
    gold: dict[str, str] | None = Field(default=None, description="null: as it is")


class DraftOut(Schema):
    id: int
    slug: str
    category: str
    instruction: str
    state: str
    cause: str
    rollout_id: int
    turn: int
    provenance: dict[str, Any]
    not_carried: list[str]
    task: str | None = Field(description="What it became")
    created_at: datetime

    @staticmethod
    def resolve_task(draft: Any) -> str | None:
        return draft.version.task.slug if draft.version else None


class AnnotationIn(Body):
    rollout: int
    kind: str = Field(max_length=20, description="verdict, tag, comment, needs_review or assignee")
    value: str = Field(default="", max_length=100, description="verdict: good, bad or unsure; tag: its name")
    text: str = Field(default="", max_length=20_000, description="The comment")
    turn: int | None = Field(default=None, ge=0, description="Turn of a comment, from 0; null: the whole rollout")
    token_start: int | None = Field(default=None, ge=0, description="First token within the turn")
    token_end: int | None = Field(default=None, ge=1, description="One past the last token")
    assignee: str = Field(default="", max_length=150, description="User name")


class AnnotationOut(Schema):
    id: int
    rollout: int
    kind: str
    value: str
    text: str
    turn: int | None
    token_start: int | None
    token_end: int | None
    assignee: str | None
    author: str
    created_at: datetime

    @staticmethod
    def resolve_rollout(annotation: Any) -> int:
        number: int = annotation.rollout_id
        return number

    @staticmethod
    def resolve_assignee(annotation: Any) -> str | None:
        return annotation.assignee.username if annotation.assignee else None

    @staticmethod
    def resolve_author(annotation: Any) -> str:
        name: str = annotation.author.username
        return name
