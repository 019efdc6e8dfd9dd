"""Read queries of groups and rollouts."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, Count, Exists, F, OuterRef, Prefetch, Q, QuerySet, When
from django.utils.formats import date_format
from django.utils.timezone import localtime

from composer_web.core.artifacts import artifacts
from composer_web.core.errors import NotFound
from composer_web.evals.models import Evaluation
from composer_web.policies.models import Policy
from composer_web.rollouts.models import GROUP_OPEN, Finding, Fork, Group, Quarantine, Rollout
from composer_web.rollouts.review_hooks import review
from composer_web.runs.models import Run
from trainer.types import Trajectory


def rollouts() -> QuerySet[Rollout]:
    """Rollouts for lists, with group, run, evaluation and task, but without bundles and trajectories."""
    return Rollout.objects.select_related(
        "deletion", "group__run", "group__evaluation", "group__fork", "group__task_version__task"
    ).defer(
        "snapshots", "group__task_version__spec", "group__run__config", "group__run__latest", "group__fork__conditions"
    )


def rollout_rows() -> QuerySet[Rollout]:
    """Rollouts for the table: only its columns from the rows that `rollouts` joins."""
    numbers = ("turns", "tool_calls", "tool_errors", "input_tokens", "cached_tokens", "output_tokens", "oldest_version")
    return Rollout.objects.select_related("group__run", "group__fork", "group__task_version__task").only(
        "state",
        "verdict",
        "stop_reason",
        "reward",
        *numbers,
        "created_at",
        "finished_at",
        "group__evaluation_id",
        "group__run__name",
        "group__fork__parent_id",
        "group__task_version__task__slug",
    )


def groups() -> QuerySet[Group]:
    """Groups for lists, with owner, task and the number of passed rollouts."""
    return (
        Group.objects.select_related("run", "evaluation", "fork", "task_version__task")
        .defer("task_version__spec", "run__config", "run__latest", "fork__conditions")
        .annotate(passed=Count("rollouts", filter=Q(rollouts__verdict="passed")))
    )


def ended_groups(run: Run, count: int) -> QuerySet[Group]:
    """The newest groups that have ended, with the columns and the rollouts that a run's overview shows of them."""
    shown = ("prompt_index", "state", "outcome", "cause", "infra_errors", "mean_reward", "best_reward", "consumed_step")
    ended = Group.objects.filter(run=run).exclude(state__in=GROUP_OPEN).select_related("task_version__task")
    samples = Rollout.objects.only("project_id", "group_id", "sample", "state", "verdict").order_by("sample")
    rows = ended.only(*shown, "project_id", "dispatched_version", "dispatched_at", "task_version__task__slug")
    return rows.prefetch_related(Prefetch("rollouts", samples)).order_by("-pk")[:count]


def worst_groups(evaluation: Evaluation, count: int) -> list[Group]:
    """Ended groups of an evaluation with failed rollouts, the lowest pass rate first. Infra errors do not count."""
    judged = groups().annotate(failed=Count("rollouts", filter=Q(rollouts__verdict="failed")))
    rate = F("passed") * 1.0 / (F("passed") + F("failed"))
    found = judged.filter(evaluation=evaluation, failed__gt=0).exclude(state__in=GROUP_OPEN)
    return list(found.order_by(rate, "-failed", "prompt_index")[:count])


def get_rollout(pk: int) -> Rollout:
    """With group, run and task; an evaluation or a fork is read when asked for, because few have one. Raises NotFound."""
    joined = Rollout.objects.select_related("group__run", "group__task_version__task")
    whole = joined.defer("snapshots", "group__task_version__spec", "group__run__config", "group__run__latest")
    found = whole.filter(pk=pk).first()
    if found is None:
        raise NotFound("rollout", pk)
    return found


def get_group(pk: int) -> Group:
    """Raises NotFound."""
    found = groups().filter(pk=pk).first()
    if found is None:
        raise NotFound("group", pk)
    return found


class TrajectoryDeleted(NotFound):
    """The trajectory was recorded and deleted since. The message says when and by whom."""

    def __init__(self, rollout: Rollout) -> None:
        assert rollout.deletion is not None, "it was deleted"
        at = date_format(localtime(rollout.deletion.created_at), "j F Y")
        super().__init__("trajectory of rollout", rollout.pk)
        self.message = f"the trajectory of rollout {rollout.pk} was deleted on {at} by {rollout.deletion.by}"
        self.args = (self.message,)


def readable(rows: QuerySet[Rollout]) -> QuerySet[Rollout]:
    """Those of the rollouts whose trajectory is recorded and not deleted."""
    return rows.exclude(artifact_key="").filter(deletion=None)


def require_kept(rollout: Rollout) -> None:
    """Raises TrajectoryDeleted."""
    if rollout.deletion_id is not None:
        raise TrajectoryDeleted(rollout)


def trajectory(rollout: Rollout) -> Trajectory:
    """The recorded trajectory. Raises NotFound if there is none or it was deleted, ArtifactError if its blob is missing."""
    if not rollout.artifact_key:
        raise NotFound("recorded trajectory of rollout", f"{rollout.pk} (it is {rollout.state})")
    require_kept(rollout)
    return artifacts().get_model(rollout.artifact_key, Trajectory)


def of_group(group: Group) -> QuerySet[Rollout]:
    """Rollouts of a group in sample order. `held`: excluded from training, as far as the current user may see it."""
    return rollouts().filter(group=group).annotate(held=_held("pk")).order_by("sample")


def _held(column: str) -> Case:
    quarantine = Exists(Quarantine.objects.filter(rollout=OuterRef(column), state="active"))
    return Case(When(Q(quarantine) & review().visible_quarantines(column), then=True), default=False)


def forks_of(rollout: Rollout) -> QuerySet[Fork]:
    """Forks of the rollout, newest first, with groups, sizes and passed rollouts."""
    of_group = ("group__size", "group__state", "group__cause")
    return (
        Fork.objects.filter(parent=rollout)
        .select_related("group", "created_by")
        .only(
            "parent_id", "turn", "reference", "replayed", "created_at", "project_id", "created_by__username", *of_group
        )
        .annotate(passed=Count("group__rollouts", filter=Q(group__rollouts__verdict="passed")))
        .order_by("-pk")
    )


def get_fork(pk: int) -> Fork:
    """Fork with its parent's group and its own. Raises NotFound."""
    found = Fork.objects.select_related("parent__group", "group", "run", "policy").filter(pk=pk).first()
    if found is None:
        raise NotFound("fork", pk)
    return found


def policy_of(group: Group) -> Policy:
    """Policy whose tokenizer produced the group's rollouts."""
    if group.run is not None:
        return group.run.policy_in
    if group.evaluation is not None:
        return group.evaluation.policy
    assert group.fork is not None, "a group has one owner"
    return group.fork.policy


def with_trajectories(run: Run) -> QuerySet[Group]:
    """Groups of a run and its evaluations with a recorded trajectory, oldest first, with bundles."""
    recorded = readable(Rollout.objects.filter(group=OuterRef("pk")))
    mine = Group.objects.filter(Q(run=run) | Q(evaluation__run=run)).filter(Exists(recorded))
    return mine.select_related("run", "evaluation", "task_version").order_by("pk")


def findings() -> QuerySet[Finding]:
    """Findings for lists, with run, task and decider."""
    return (
        Finding.objects.select_related("run", "task_version__task", "rollout", "group__evaluation", "decided_by")
        .defer("task_version__spec", "run__config", "run__latest", "rollout__reward_parts", "rollout__seconds")
        .annotate(quarantined=_held("rollout"))
        .filter(review().visible_findings())
    )


def finding_rows() -> QuerySet[Finding]:
    """Findings for the table, with its columns only. The task's name is a column of the finding."""
    shown = ("subject", "rollout_id", "rule", "severity", "summary", "evidence", "state", "slug", "created_at")
    rows = Finding.objects.select_related("run").only(*shown, "run__name").filter(review().visible_findings())
    return rows.annotate(quarantined=_held("rollout"))


def get_finding(pk: int) -> Finding:
    """Raises NotFound."""
    found = findings().filter(pk=pk).first()
    if found is None:
        raise NotFound("finding", pk)
    return found


def quarantine_of(finding: Finding) -> Quarantine | None:
    """Past or present quarantine of the finding's subject, with its history."""
    query = Quarantine.objects.prefetch_related("transitions")
    if finding.subject == "rollout":
        return query.filter(rollout=finding.rollout_id).first()
    return query.filter(task_version=finding.task_version_id).first() if finding.subject == "task" else None


def in_quarantine(rollout: Rollout) -> bool:
    """Whether the rollout is currently excluded from training."""
    return Quarantine.objects.filter(rollout=rollout, state="active").exists()


def findings_of(rollout: Rollout) -> list[Finding]:
    """Findings of one rollout: worst first, dismissed last."""
    order = {"high": 0, "medium": 1, "low": 2}
    found = Finding.objects.filter(review().visible_findings(), rollout=rollout).select_related("decided_by")
    found = found.annotate(quarantined=_held("rollout"))
    return sorted(found, key=lambda f: (f.state == "dismissed", order[f.severity], f.pk))


def finding_counts(*, run: Run) -> dict[str, int]:
    """Findings of a run that are not dismissed, by severity, and its number of quarantined rollouts."""
    rows = Finding.objects.filter(run=run).exclude(state="dismissed").values_list("severity").annotate(n=Count("pk"))
    counts = {"high": 0, "medium": 0, "low": 0, **dict(rows.order_by())}
    counts["quarantined"] = Quarantine.objects.filter(rollout__group__run=run, state="active").count()
    return counts


def finding_facets(query: QuerySet[Finding]) -> list[dict[str, Any]]:
    """Rules of these findings with counts by severity and state, most frequent first."""
    found: dict[str, dict[str, Any]] = {}
    # By all three at once: Postgres then counts a row once instead of four times.
    for rule, severity, state, number in (
        query.order_by().values_list("rule", "severity", "state").annotate(n=Count("*"))
    ):
        facet = found.setdefault(rule, {"rule": rule, "total": 0, "open": 0, "confirmed": 0, "high": 0})
        for name, counts in (
            ("total", True),
            ("open", state == "open"),
            ("confirmed", state == "confirmed"),
            ("high", severity == "high"),
        ):
            facet[name] += number * counts
    return sorted(found.values(), key=lambda facet: (-facet["total"], facet["rule"]))


def next_failure(rollout: Rollout) -> Rollout | None:
    """The failed rollout of the same run or evaluation before this one, newest first; after the oldest, the newest. None if
    there is no other."""
    group = rollout.group
    owner = {"group__run": group.run_id} if group.run_id else {"group__evaluation": group.evaluation_id}
    if not any(owner.values()):
        return None
    failed = Rollout.objects.filter(**owner, verdict="failed").exclude(pk=rollout.pk).order_by("-pk")
    return failed.filter(pk__lt=rollout.pk).first() or failed.first()


def siblings(rollout: Rollout) -> list[Rollout]:
    """All rollouts of the same prompt, in sample order, with what a list of them shows."""
    shown = ("sample", "state", "verdict", "reward", "project_id", "group_id")
    found = Rollout.objects.filter(group=rollout.group_id).only(*shown)
    return list(found.annotate(held=_held("pk")).order_by("sample"))


def verdict_counts(*, run: Run | None = None) -> dict[str, int]:
    """Number of dispatched rollouts and of each verdict. `open` counts those without one."""
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
