"""Read queries of evaluations."""

from __future__ import annotations

from django.db.models import Case, Count, OuterRef, Q, QuerySet, Subquery, Value, When

from composer_web.core.errors import NotFound
from composer_web.evals.models import Evaluation, SideScore
from composer_web.runs.models import Run

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
"""Columns of joined rows that no list shows."""


def evaluations() -> QuerySet[Evaluation]:
    """Evaluations for lists, with the names of run, policy, release and suite, without conditions."""
    named = Evaluation.objects.select_related("run", "policy", "suite", "release", "created_by")
    return named.defer("conditions", *MADE_OF)


def counted(rows: QuerySet[Evaluation]) -> QuerySet[Evaluation]:
    """Add counts of finished and dispatched groups, computed for the displayed rows only."""
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
    """Evaluations of the run by version, oldest first, with what their rows and curves show."""
    shown = ("run_id", "project_id", "phase", "version", "state", "results", "tasks", "samples", "created_at")
    return Evaluation.objects.filter(run=run).only(*shown, "finished_at").order_by("version", "pk")


def comparable(evaluation: Evaluation, limit: int = 50) -> QuerySet[Evaluation]:
    """Other finished evaluations of the same release or suite: first those of the same run (`own`), newest first."""
    same = {"release": evaluation.release} if evaluation.release_id else {"suite": evaluation.suite, "release": None}
    found = evaluations().filter(state="finished", **same).exclude(pk=evaluation.pk)
    of_run = Case(When(run=evaluation.run_id, then=True), default=False) if evaluation.run_id else Value(False)
    return found.annotate(own=of_run).order_by("-own", "-pk")[:limit]


def weak_sides(evaluation: Evaluation, limit: int = 12) -> QuerySet[SideScore]:
    """Lowest behaviour scores with their rollouts and tasks, to be read first."""
    low = SideScore.objects.filter(evaluation=evaluation, value__lt=0.5).order_by("value", "pk")
    return low.select_related("rollout__group__task_version__task").defer("rollout__group__task_version__spec")[:limit]
