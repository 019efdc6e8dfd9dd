"""Task difficulty for a policy: measured by an evaluation of the suite, used by the curriculum."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from composer_web.tasks.models import Suite, TaskStatistic

SAMPLES = 4
"""Rollouts of a task in a pre-pass, where nobody says otherwise."""
MAX_LISTED = 500


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Difficulty of a suite, measured with one policy."""

    policy: str
    measured: int
    solved_all: int
    solved_none: int
    pass_rate: float
    turns: float
    thinking_tokens: float


def tasks_of(suite: Suite, *, policy: str, limit: int = MAX_LISTED) -> list[TaskStatistic]:
    """The newest statistic of each task of a suite for one policy, the hardest first. One query."""
    found = newest(suite_name=suite.name, policy=policy).select_related("task_version__task") if policy else []
    return sorted(found, key=lambda one: (one.pass_rate, one.task_version_id))[:limit]


def newest(*, suite_name: str, policy: str = "") -> QuerySet[TaskStatistic]:
    """The newest statistic of each version of a suite, of one policy or of any."""
    found = TaskStatistic.objects.filter(task_version__suites__name=suite_name)
    if policy:
        found = found.filter(policy=policy)
    return found.order_by("task_version_id", "-measured_at", "-id").distinct("task_version_id")


def of_suite(suite: Suite) -> list[Difficulty]:
    """What each policy that was measured on the suite showed, by its newest statistics. One query."""
    rows: dict[str, dict[int, TaskStatistic]] = {}
    query = TaskStatistic.objects.filter(task_version__suites=suite).order_by("measured_at", "id")
    for one in query:
        rows.setdefault(one.policy, {})[one.task_version_id] = one
    return [
        Difficulty(
            policy=policy,
            measured=len(found),
            solved_all=sum(one.passed == one.samples for one in found.values()),
            solved_none=sum(one.passed == 0 for one in found.values()),
            pass_rate=sum(one.pass_rate for one in found.values()) / len(found),
            turns=sum(one.turns for one in found.values()) / len(found),
            thinking_tokens=sum(one.thinking_tokens for one in found.values()) / len(found),
        )
        for policy, found in sorted(rows.items())
    ]
