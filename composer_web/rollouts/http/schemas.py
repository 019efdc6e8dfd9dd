"""Groups and rollouts as the API gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body
from composer_web.rollouts.selectors import of_group


class RolloutOut(Schema):
    id: int
    group_id: int
    run_id: int | None
    evaluation_id: int | None
    fork_id: int | None
    task: str
    sample: int
    state: str
    verdict: str = Field(description="passed, failed, infra_error; empty while it is open")
    stop_reason: str
    reward: float | None
    reward_parts: list[dict[str, Any]]
    cause: str = Field(description="Why it is not passed, for people")
    outcome: str = Field(
        description="The same as a word of a fixed list (tests_failed, overtime, sandbox_lost, …); empty in old rollouts"
    )
    turns: int
    tool_calls: int
    tool_errors: int
    output_tokens: int
    policy_tokens: int = Field(deprecated=True, description="The same as output_tokens; removed after release 0.2")
    total_tokens: int
    oldest_version: int | None
    newest_version: int | None
    seconds: dict[str, float]
    created_at: datetime
    finished_at: datetime | None
    trajectory_deleted_at: datetime | None = Field(description="Since when only its row is left; null: it is kept")

    @staticmethod
    def resolve_trajectory_deleted_at(rollout: Any) -> datetime | None:
        return rollout.deletion.created_at if rollout.deletion_id else None

    @staticmethod
    def resolve_policy_tokens(rollout: Any) -> int:
        return rollout.output_tokens

    @staticmethod
    def resolve_run_id(rollout: Any) -> int | None:
        return rollout.group.run_id

    @staticmethod
    def resolve_evaluation_id(rollout: Any) -> int | None:
        return rollout.group.evaluation_id

    @staticmethod
    def resolve_fork_id(rollout: Any) -> int | None:
        return rollout.group.fork_id

    @staticmethod
    def resolve_task(rollout: Any) -> str:
        return rollout.group.task_version.task.slug


class TrajectoryPage(Schema):
    """A trajectory's head and some of its turns. Token arrays come only with `tokens=true`, for these turns' segments."""

    rollout_id: int
    task_id: str
    bundle_hash: str
    messages: list[dict[str, Any]]
    stop_reason: str
    report: dict[str, Any]
    reward: float | None
    reward_parts: list[dict[str, Any]]
    seconds: dict[str, float]
    patch: str
    patch_skipped: list[str]
    turns_total: int
    turns: list[dict[str, Any]]
    next: int | None = Field(description="`offset` of the following turns; null at the end")
    missing: int = Field(description="Characters of very long texts that only the page's JSON download has")
    segments: list[dict[str, Any]]


class GroupOut(Schema):
    id: int
    run_id: int | None
    evaluation_id: int | None
    fork_id: int | None
    task: str
    prompt_index: int
    size: int
    state: str
    dispatched_version: int
    oldest_version: int | None
    attempts: int
    infra_errors: int
    cause: str = Field(description="Why it was retried or dropped, for people")
    outcome: str = Field(description="The same as a word of a fixed list (sandbox_lost, cancelled, …); empty: no loss")
    mean_reward: float | None
    best_reward: float | None
    consumed_step: int | None
    passed: int
    created_at: datetime
    accepted_at: datetime | None

    @staticmethod
    def resolve_task(group: Any) -> str:
        return group.task_version.task.slug


class GroupDetail(GroupOut):
    rollouts: list[RolloutOut]

    @staticmethod
    def resolve_rollouts(group: Any) -> list[Any]:
        return list(of_group(group))


class ForkIn(Body):
    turn: int = Field(ge=1, description="Turns of the rollout that are kept; the next one is sampled anew")
    count: int = Field(default=4, ge=1, le=64, description="Samples to draw")
    policy: str = Field(
        default="", max_length=120, description="name or name@version; empty: the newest version of the rollout's run"
    )


class ForkOut(Schema):
    id: int
    parent_id: int = Field(description="The rollout that is continued")
    turn: int
    reference: str = Field(description="The policy that continues; empty: the newest version of the run")
    replayed: int | None = Field(
        description="0: a snapshot of the turn was there; else turns whose calls were run again; null before it starts"
    )
    group_id: int = Field(description="Its rollouts: /groups/{group_id}")
    state: str
    cause: str
    size: int
    passed: int
    created_at: datetime

    @staticmethod
    def resolve_group_id(fork: Any) -> int:
        return fork.group.pk

    @staticmethod
    def resolve_state(fork: Any) -> str:
        return fork.group.state

    @staticmethod
    def resolve_cause(fork: Any) -> str:
        return fork.group.cause

    @staticmethod
    def resolve_size(fork: Any) -> int:
        return fork.group.size


class FindingOut(Schema):
    id: int
    subject: str = Field(description="rollout, group, task or run")
    run_id: int | None
    group_id: int | None
    rollout_id: int | None
    task: str = Field(description="Empty for findings on a run")
    source: str = Field(description="rules, monitor or judge")
    rule: str
    rule_version: int
    severity: str
    summary: str
    evidence: list[dict[str, Any]]
    hits: int
    state: str = Field(description="open, confirmed or dismissed")
    quarantined: bool = Field(description="The rollout is kept out of training now")
    decided_by: str
    decided_at: datetime | None
    note: str
    created_at: datetime

    @staticmethod
    def resolve_task(finding: Any) -> str:
        return finding.task_version.task.slug if finding.task_version else ""

    @staticmethod
    def resolve_decided_by(finding: Any) -> str:
        return finding.decided_by.get_username() if finding.decided_by else ""


class TransitionOut(Schema):
    from_state: str
    to_state: str
    actor: str
    reason: str
    at: datetime


class FindingDetail(FindingOut):
    transitions: list[TransitionOut]

    @staticmethod
    def resolve_transitions(finding: Any) -> list[Any]:
        return list(finding.transitions.all())


class DecisionIn(Body):
    note: str = Field(default="", max_length=2000, description="Why; kept with the finding and in its history")


class AuditRuleOut(Schema):
    id: str
    version: int
    title: str
    looks_at: str
    hazard: str
    exploits: list[str]
