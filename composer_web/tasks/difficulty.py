"""Task difficulty for a policy: measured by an evaluation of the suite, used by the curriculum."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.tasks.models import Suite, TaskStatistic
from trainer.types import Trajectory

if TYPE_CHECKING:
    from composer_web.evals.models import Evaluation


SAMPLES = 4
"""Rollouts of a task in a pre-pass, where nobody says otherwise."""
TEMPERATURE = 1.0
"""That of training: a pre-pass is to say what a run will meet."""
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


@transaction.atomic
def record_statistics(*, evaluation_id: int) -> int:
    """Per-task statistics of a finished evaluation, in place of what its policy version showed before; returns how many.

    Rollouts lost to the machine count for nothing.
    """
    from composer_web.evals.models import Evaluation
    from composer_web.rollouts.models import Rollout

    evaluation = Evaluation.objects.select_related("policy").get(pk=evaluation_id)
    by_task: dict[int, list[Rollout]] = defaultdict(list)
    graded = Rollout.objects.filter(group__evaluation=evaluation, verdict__in=["passed", "failed"])
    for rollout in graded.select_related("group"):
        by_task[rollout.group.task_version_id].append(rollout)
    now = timezone.now()
    rows = []
    for version_id, rollouts in by_task.items():
        count = len(rollouts)
        rows.append(
            TaskStatistic(
                task_version_id=version_id,
                policy=evaluation.policy.name,
                version=evaluation.version,
                evaluation_id=evaluation.pk,
                samples=count,
                passed=sum(rollout.verdict == "passed" for rollout in rollouts),
                turns=sum(rollout.turns for rollout in rollouts) / count,
                thinking_tokens=sum(_thinking(rollout.artifact_key) for rollout in rollouts) / count,
                policy_tokens=sum(rollout.policy_tokens for rollout in rollouts) / count,
                measured_at=now,
            )
        )
    fields = [f.name for f in TaskStatistic._meta.fields if f.name not in ("id", "task_version", "policy", "version")]
    TaskStatistic.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["task_version", "policy", "version"],
        update_fields=fields,
        batch_size=1000,
    )
    return len(rows)


def _thinking(key: str) -> int:
    return sum(turn.thinking_tokens for turn in artifacts().get_model(key, Trajectory).turns) if key else 0


def prepass(
    *, suite: Suite, reference: str, samples: int = SAMPLES, tasks: int = 0, seed: int = 0, actor: User | None = None
) -> Evaluation:
    """Measure `name` or `name@version` on a suite (0 tasks: all of it). Raises UserError.

    When the evaluation has finished, its statistics are recorded and shown.
    """
    from composer_web.evals.services import evaluate

    return evaluate(
        reference=reference, suite=suite, tasks=tasks or suite.memberships.count(), samples=samples,
        temperature=TEMPERATURE, seed=seed, actor=actor,
    )  # fmt: skip


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
