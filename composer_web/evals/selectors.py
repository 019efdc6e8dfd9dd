"""Reads of evaluations."""

from __future__ import annotations

import time

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery

from composer_web.evals.models import Evaluation, SideScore
from composer_web.ops.errors import NotFound
from composer_web.runs.models import Run
from composer_web.runs.selectors import WaitTimeout

GROUPS_DONE = ("accepted", "consumed", "dropped")
FINAL = ("finished", "failed", "cancelled")
MADE_OF = (
    "run__config",
    "run__latest",
    "policy__architecture",
    "suite__recipe",
    "release__statistics",
    "release__contamination",
)
"""What no list says of the rows that come along."""


def evaluations() -> QuerySet[Evaluation]:
    """For lists: the names of run, policy, release and suite come along; the conditions do not."""
    named = Evaluation.objects.select_related("run", "policy", "suite", "release")
    return named.defer("conditions", *MADE_OF)


def counted(rows: QuerySet[Evaluation]) -> QuerySet[Evaluation]:
    """With counts of groups done and dispatched, computed for the rows that are shown only."""
    groups = Evaluation.objects.filter(pk=OuterRef("pk")).order_by()
    return rows.annotate(
        groups_total=Subquery(groups.annotate(n=Count("groups")).values("n")),
        groups_done=Subquery(groups.annotate(n=Count("groups", filter=Q(groups__state__in=GROUPS_DONE))).values("n")),
    )


def get_evaluation(pk: int) -> Evaluation:
    """Raises NotFound."""
    whole = Evaluation.objects.select_related("run", "policy", "suite", "release", "grader", "created_by")
    found = counted(whole.defer("run__config", "run__latest")).filter(pk=pk).first()
    if found is None:
        raise NotFound("evaluation", pk)
    return found


def of_run(run: Run) -> QuerySet[Evaluation]:
    """By version, oldest first."""
    return evaluations().filter(run=run).order_by("version", "pk")


def wait_for_evaluations(run: Run, *, timeout: float, poll: float = 0.5) -> list[Evaluation]:
    """All evaluations of a run once none is open. Raises WaitTimeout."""
    end = time.monotonic() + timeout
    while True:
        found = list(of_run(run))
        open_ = [e for e in found if e.state not in FINAL]
        if not open_:
            return found
        if time.monotonic() > end:
            first = open_[0]
            left = first.groups.exclude(state__in=GROUPS_DONE).count()
            raise WaitTimeout(
                f"evaluation {first.pk} ({first.phase}) is {first.state} with {left} open groups after {timeout:.0f} s"
            )
        time.sleep(poll)


def comparable(evaluation: Evaluation, limit: int = 50) -> QuerySet[Evaluation]:
    """Other finished evaluations of the same release or suite, newest first."""
    same = {"release": evaluation.release} if evaluation.release_id else {"suite": evaluation.suite, "release": None}
    found = evaluations().filter(state="finished", **same).exclude(pk=evaluation.pk)
    return found.order_by("-pk")[:limit]


def weak_sides(evaluation: Evaluation, limit: int = 12) -> QuerySet[SideScore]:
    """Its lowest side scores with their rollouts and tasks: what to read first."""
    low = SideScore.objects.filter(evaluation=evaluation, value__lt=0.5).order_by("value", "pk")
    return low.select_related("rollout__group__task_version__task").defer("rollout__group__task_version__spec")[:limit]
