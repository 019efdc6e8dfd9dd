"""Lineage of a run, in both directions: runs, checkpoints, suites, environments, code."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count

from composer_web.policies.models import Checkpoint
from composer_web.repositories.models import Environment
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite, SuiteMembership

MAX_ANCESTORS = 12
MAX_ENVIRONMENTS = 12


@dataclass(frozen=True)
class UsedEnvironment:
    environment: Environment
    tasks: int


@dataclass(frozen=True)
class Lineage:
    ancestors: list[Run]
    """The parent, its parent, and so on."""
    children: list[Run]
    followers: list[Run]
    """Runs that start from the policy that it trains, once it has finished."""
    start: Checkpoint | None
    """Checkpoint with the initial weights. None for imported weights."""
    made: list[Checkpoint]
    suites: list[tuple[str, Suite]]
    """(purpose, suite)."""
    environments: list[UsedEnvironment]
    bare_tasks: int
    """Tasks that ship their own files instead of using a prepared environment."""
    more_environments: bool


def lineage(run: Run) -> Lineage:
    ancestors: list[Run] = []
    seen = run.parent_id
    while seen is not None and len(ancestors) < MAX_ANCESTORS:
        parent = Run.objects.only("name", "parent_id", "policy_in_id").get(pk=seen)
        ancestors.append(parent)
        seen = parent.parent_id
    start = run.policy_in.checkpoints.filter(version=run.policy_in_version).order_by("-kind").first()
    made = list(run.policy_out.checkpoints.order_by("-version", "kind")[:6]) if run.policy_out else []
    stage = run.config.get("stage", {})
    wanted = {"Trains on": stage.get("suite"), "Measured on": stage.get("eval_suite")}
    known = {suite.name: suite for suite in Suite.objects.filter(name__in=[name for name in wanted.values() if name])}
    suites = [(use, known[name]) for use, name in wanted.items() if name in known]
    counts: dict[int | None, int] = {
        row["task_version__environment"]: row["tasks"]
        for row in SuiteMembership.objects.filter(suite__in=[suite for _, suite in suites])
        .values("task_version__environment")
        .annotate(tasks=Count("task_version", distinct=True))
        .order_by("-tasks")
    }
    bare = counts.pop(None, 0)
    shown = [pk for pk in counts if pk is not None][:MAX_ENVIRONMENTS]
    rows = Environment.objects.in_bulk(shown)
    return Lineage(
        ancestors,
        list(Run.objects.filter(parent=run).only("name").order_by("pk")[:20]),
        list(run.followers.only("name", "state").order_by("pk")[:20]),
        start,
        made,
        suites,
        [UsedEnvironment(rows[pk], counts[pk]) for pk in shown],
        bare,
        len(counts) > MAX_ENVIRONMENTS,
    )
