"""Moving tasks out of training, so that a benchmark or held-out suite can have them, and what that changes.

A training suite that no run has used loses the task. One that was used stays as it was, because its runs name it: it is
retired, and a successor without the task takes its place for new runs.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import UserError
from composer_web.live.hints import hint
from composer_web.tasks.curation.services import Batch, is_used, leave, record, suite_change
from composer_web.tasks.models import Suite, SuiteMembership, Task

LIVE_TRAINING = Q(suite__purpose="train", suite__retired_at__isnull=True)
"""Memberships that keep a task out of held-out suites and benchmarks."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A training suite with the task, and what moving the task out does to it."""

    suite: Suite
    used: bool
    successor: str
    """Name of the suite that replaces it. Empty for a suite that simply loses the task."""

    @property
    def consequence(self) -> str:
        if not self.used:
            return f"{self.suite.name} loses it"
        return f"{self.suite.name} has been used, so it is retired and new runs use {self.successor} without it"


def holdings(task: Task) -> list[Holding]:
    """Live training suites that have the task."""
    found = Suite.objects.filter(memberships__task=task, purpose="train", retired_at=None).distinct().order_by("name")
    return [
        Holding(suite, used, _successor(suite.name) if used else "") for suite in found for used in (is_used(suite),)
    ]


def consequences(tasks: QuerySet[Task]) -> list[str]:
    """What moving all of these out does to each live training suite that has some of them."""
    live = SuiteMembership.objects.filter(LIVE_TRAINING, task__in=tasks.values("pk").order_by())
    counted = live.values("suite").annotate(count=Count("task", distinct=True)).order_by("-count", "suite__name")
    numbers = dict(counted.values_list("suite", "count"))
    suites = Suite.objects.in_bulk(numbers)
    found = []
    for pk, count in numbers.items():
        suite, many = suites[pk], f"{count} task{'s' * (count != 1)}"
        if is_used(suite):
            found.append(
                f"suite {suite.name} has been used, so it is retired and new runs use {_successor(suite.name)} without {many}"
            )
        else:
            found.append(f"suite {suite.name} loses {many}")
    return found


def _successor(name: str) -> str:
    """The next free name: `train` becomes `train-2`."""
    stem, number = re.fullmatch(r"(.*?)(?:-(\d{1,6}))?", name).groups()  # type: ignore[union-attr]  # it matches any text
    n = int(number or 1) + 1
    while Suite.objects.filter(name=f"{stem[:70]}-{n}").exists():
        n += 1
    return f"{stem[:70]}-{n}"


@transaction.atomic
def move_out(*, tasks: Sequence[Task], actor: User) -> Batch:
    """Take tasks out of every live training suite. Rollouts that were trained on them stay recorded. Raises UserError."""
    rows = list(Task.objects.select_for_update(no_key=True).filter(pk__in=[task.pk for task in tasks]).order_by("pk"))
    found = Suite.objects.filter(memberships__task__in=rows, purpose="train", retired_at=None)
    names = list(found.distinct().values_list("pk", flat=True))
    suites = list(Suite.objects.select_for_update(no_key=True).filter(pk__in=names).order_by("name"))
    if not suites:
        raise UserError("tasks", "none of these tasks is in a training suite")
    changes = []
    for suite in suites:
        if is_used(suite):
            replace(suite, without=rows, actor=actor)
            members = suite.memberships.filter(task__in=rows).select_related("task_version__task")
            changes += [suite_change(one.task_version.task, suite, one.task_version, None) for one in members]
        else:
            changes += leave(rows, suite)
    side = [task for task in rows if task.split == "train"]
    Task.objects.filter(pk__in=[task.pk for task in side]).update(split="")
    batch = uuid.uuid4()
    record(changes, batch=batch, actor=actor)
    audit(actor=actor, action="task.leave_training", target=f"batch:{batch}", tasks=len(rows), suites=len(suites))
    hint("tasks", "suites", *(f"suite:{suite.pk}" for suite in suites))
    return Batch(batch, len(rows), 0)


def replace(suite: Suite, *, without: Sequence[Task], actor: User) -> Suite:
    """Retire a used suite in favour of a copy without some tasks. Inside a transaction."""
    made = Suite.objects.create(
        name=_successor(suite.name),
        purpose=suite.purpose,
        description=suite.description,
        reviewed=suite.reviewed,
        recipe={"source": "curation", "replaces": suite.name, "of": suite.recipe},
        project_id=suite.project_id,
    )
    kept = suite.memberships.exclude(task__in=without).order_by("position")
    rows = [SuiteMembership(suite=made, task_version_id=pk, position=i) for i, pk in enumerate(_versions(kept))]
    SuiteMembership.objects.bulk_create(rows, batch_size=2000)
    suite.retired_at, suite.replaced_by = timezone.now(), made
    suite.save(update_fields=["retired_at", "replaced_by"])
    audit(actor=actor, action="suite.retire", target=f"suite:{suite.pk}", name=suite.name, successor=made.name)
    return made


def _versions(members: QuerySet[SuiteMembership]) -> list[int]:
    return list(members.values_list("task_version_id", flat=True))
