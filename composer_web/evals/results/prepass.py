"""Pre-passes: evaluations that measure how hard the tasks of a suite are for a policy, and the statistics they leave."""

from __future__ import annotations

from collections import defaultdict

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.evals.models import Evaluation
from composer_web.evals.services import evaluate
from composer_web.rollouts.models import Rollout
from composer_web.tasks.difficulty import SAMPLES
from composer_web.tasks.models import Suite, TaskStatistic
from trainer.types import Trajectory

TEMPERATURE = 1.0
"""That of training: a pre-pass is to say what a run will meet."""


@transaction.atomic
def record_statistics(*, evaluation_id: int) -> int:
    """Per-task statistics of a finished evaluation, in place of what its policy version showed before; returns how many.

    Rollouts lost to the machine count for nothing.
    """
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
                output_tokens=sum(rollout.output_tokens for rollout in rollouts) / count,
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
    return evaluate(
        reference=reference, suite=suite, tasks=tasks or suite.memberships.count(), samples=samples,
        temperature=TEMPERATURE, seed=seed, actor=actor,
    )  # fmt: skip
