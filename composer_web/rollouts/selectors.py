"""Reads of groups and rollouts."""

from __future__ import annotations

from django.db.models import Count, Q, QuerySet

from composer_web.ops.artifacts import artifacts
from composer_web.ops.errors import NotFound
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.models import Run
from trainer.rollouts.types import Trajectory


def rollouts() -> QuerySet[Rollout]:
    """For lists: group, run, evaluation and task come along; never a bundle or a trajectory."""
    return Rollout.objects.select_related("group__run", "group__evaluation", "group__task_version__task").defer(
        "group__task_version__spec", "group__run__config", "group__run__latest"
    )


def groups() -> QuerySet[Group]:
    """For lists: owner and task come along, with counts of passed rollouts."""
    return (
        Group.objects.select_related("run", "evaluation", "task_version__task")
        .defer("task_version__spec", "run__config", "run__latest")
        .annotate(passed=Count("rollouts", filter=Q(rollouts__verdict="passed")))
    )


def get_rollout(pk: int) -> Rollout:
    """Raises NotFound."""
    found = rollouts().filter(pk=pk).first()
    if found is None:
        raise NotFound("rollout", pk)
    return found


def get_group(pk: int) -> Group:
    """Raises NotFound."""
    found = groups().filter(pk=pk).first()
    if found is None:
        raise NotFound("group", pk)
    return found


def trajectory(rollout: Rollout) -> Trajectory:
    """The recorded trajectory. Raises NotFound while there is none, ArtifactError when its blob is gone."""
    if not rollout.artifact_key:
        raise NotFound("recorded trajectory of rollout", f"{rollout.pk} (it is {rollout.state})")
    return artifacts().get_model(rollout.artifact_key, Trajectory)


def of_group(group: Group) -> QuerySet[Rollout]:
    """All rollouts of a group, in sample order."""
    return rollouts().filter(group=group).order_by("sample")


def siblings(rollout: Rollout) -> QuerySet[Rollout]:
    """All rollouts of the same prompt, in sample order."""
    return of_group(rollout.group)


def verdict_counts(*, run: Run | None = None) -> dict[str, int]:
    """Dispatched rollouts and verdicts by kind; `open` have none yet and dispatched is the sum of all."""
    query = Rollout.objects.all()
    if run is not None:
        query = query.filter(Q(group__run=run) | Q(group__evaluation__run=run))
    rows = dict(query.values_list("verdict").annotate(count=Count("pk")).order_by())
    open_ = rows.pop("", 0)
    counts = {kind: rows.get(kind, 0) for kind in ("passed", "failed", "infra_error")}
    return {"dispatched": sum(counts.values()) + open_, **counts, "open": open_}


def group_counts(run: Run) -> dict[str, int]:
    """Groups of a run by state."""
    return dict(Group.objects.filter(run=run).values_list("state").annotate(count=Count("pk")).order_by())
