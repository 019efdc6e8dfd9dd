"""Read queries of tasks and suites."""

from __future__ import annotations

import random
from typing import Any

from django.db.models import Count, Max, QuerySet, Sum

from composer_web.core.errors import NotFound
from composer_web.tasks.difficulty import newest
from composer_web.tasks.models import (
    GeneratorRun,
    ImportedTrajectory,
    Suite,
    SuiteMembership,
    Task,
    TaskChange,
    TaskVersion,
)
from trainer.config import CurriculumConfig
from trainer.orchestrator.curriculum import Candidate, arrange


def tasks() -> QuerySet[Task]:
    """Tasks for lists, with the newest version's id and controls, without its bundle."""
    return Task.objects.all()


def task_versions() -> QuerySet[TaskVersion]:
    return TaskVersion.objects.select_related("task", "environment").defer("spec")


def get_task(slug: str) -> Task:
    found = tasks().filter(slug=slug).first()
    if found is None:
        raise NotFound("task", slug)
    return found


def newest_version(task: Task) -> TaskVersion:
    """Raises NotFound when the task has no version yet."""
    found = task_versions().filter(task=task).order_by("-number").first()
    if found is None:
        raise NotFound("version of task", task.slug)
    return found


def suites() -> QuerySet[Suite]:
    return Suite.objects.all()


def any_suite() -> bool:
    return Suite.objects.exists()


def get_suite(key: int | str) -> Suite:
    """By id or name. Raises NotFound."""
    query = suites()
    found = query.filter(pk=key).first() if isinstance(key, int) else query.filter(name=key).first()
    if found is None:
        raise NotFound("suite", key)
    return found


MANY = 5000
"""Suite size from which the query scans in task order. Members of smaller suites are sorted."""


def members(suite: Suite) -> QuerySet[SuiteMembership]:
    rows = suite.memberships.select_related("task", "task_version__task")
    if suite.task_count > MANY:  # an inner join, which may begin with an index of the tasks
        rows = rows.filter(task__slug__gt="")
    return rows.defer("task_version__spec", "task_version__controls").order_by("position")


def prompt_order(suite_name: str, *, seed: int, sampler: CurriculumConfig | None = None, prompts: int = 0) -> list[int]:
    """Task version ids of a suite in the seeded order in which a run uses them, rejected ones left out.

    A `sampler` that is not neutral chooses and orders them by difficulty and category; `prompts` is what the run needs.
    """
    rows = (
        SuiteMembership.objects.filter(suite__name=suite_name)
        .exclude(task_version__controls_ok=False)
        .order_by("position")
        .values_list("task_version_id", "task_version__task__category")
    )
    order = list(rows)
    random.Random(f"{seed}:{suite_name}").shuffle(order)
    if sampler is None or sampler == CurriculumConfig():
        return [pk for pk, _ in order]
    known = {one.task_version_id: one for one in newest(suite_name=suite_name, policy=sampler.policy)}
    candidates = [
        Candidate(pk, category, found.pass_rate, found.turns, found.thinking_tokens)
        if (found := known.get(pk))
        else Candidate(pk, category)
        for pk, category in order
    ]
    return arrange(candidates, sampler, prompts=prompts, seed=f"{seed}:{suite_name}")


def suite_state(suite_name: str) -> tuple[int, int, int]:
    """Changes whenever the versions of `prompt_order` do: their number, their sum, the newest membership."""
    rows = SuiteMembership.objects.filter(suite__name=suite_name).exclude(task_version__controls_ok=False)
    found = rows.aggregate(count=Count("pk"), total=Sum("task_version_id"), newest=Max("pk"))
    return found["count"], found["total"] or 0, found["newest"] or 0


def first_versions(suite: Suite, count: int) -> list[int]:
    """First `count` usable versions of a suite by position: the same tasks for every evaluation."""
    rows = suite.memberships.exclude(task_version__controls_ok=False).order_by("position")
    return list(rows.values_list("task_version_id", flat=True)[:count])


def changes(task: Task | None = None) -> QuerySet[TaskChange]:
    """User changes of one task or of all, newest first, with the changes that undid them."""
    query = TaskChange.objects.select_related("task", "undone_by").order_by("-pk")
    return query.filter(task=task) if task else query


def imported_trajectories() -> QuerySet[ImportedTrajectory]:
    return ImportedTrajectory.objects.select_related("created_by")


def generator_runs() -> QuerySet[GeneratorRun]:
    return GeneratorRun.objects.all()


def generator_totals() -> list[dict[str, Any]]:
    """Total attempts, results and costs of each generator. One query."""
    sums = {name: Sum(name) for name in ("tried", "kept", "seconds", "control_seconds", "model_tokens")}
    query = GeneratorRun.objects.order_by().values("generator").annotate(runs=Count("pk"), **sums)
    rows: list[dict[str, Any]] = [dict(row) for row in query]
    for row in rows:
        row["share"] = row["kept"] / row["tried"] if row["tried"] else 0.0
        row["per_minute"] = 60.0 * row["kept"] / row["seconds"] if row["seconds"] else 0.0
    return sorted(rows, key=lambda row: row["generator"])


def instruction_of(version_id: int) -> str:
    """What the policy is asked in a task version. Reads nothing else of the bundle."""
    found = TaskVersion.objects.filter(pk=version_id).values_list("spec__instruction", flat=True).first()
    return str(found or "")
