"""Read queries of releases: leaderboard, results per task, and scores carried over from earlier releases."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db.models import BigIntegerField, Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from composer_web.core.errors import NotFound
from composer_web.evals.models import Evaluation, Release, ReleaseTask
from composer_web.rollouts.models import Group, Quarantine, Rollout
from trainer.rl.evaluate import mean_interval

SATURATED_ROLLOUTS = 8
"""Number of verdicts, all passes, from which a task no longer distinguishes policies."""
UNSOLVED_ROLLOUTS = 16
"""Number of verdicts without a pass from which a task needs inspection."""
LOST_SHARE = 0.5
"""Share of infra errors among rollouts from which a task counts as broken."""
MAX_ROWS = 200


@dataclass(frozen=True)
class Row:
    """A finished evaluation on the leaderboard. Shares are in [0, 1]; tokens, seconds and dollars are medians per
    rollout."""

    evaluation: Evaluation
    rank: int
    name: str
    score: float
    low: float | None
    high: float | None
    best: float | None
    tokens: float | None
    seconds: float | None
    cost: float | None
    pareto_tokens: bool = False
    pareto_cost: bool = False
    sides: dict[str, Any] = field(default_factory=dict)
    """Aspect → `sides.Side`. The interruption comes from a separate evaluation."""


@dataclass(frozen=True)
class TaskResult:
    """A task of a release with the results of all finished evaluations."""

    member: ReleaseTask
    passed: int
    verdicts: int
    lost: int
    flag: str
    """saturated, unsolved, broken, or empty."""
    why: str

    @property
    def task_version_id(self) -> int:
        return self.member.task_version_id


@dataclass(frozen=True)
class Carried:
    """An evaluation of an earlier release, scored on the common tasks. Never ranked with the others."""

    evaluation: Evaluation
    name: str
    tasks: int
    score: float
    low: float
    high: float


def releases() -> QuerySet[Release]:
    """Releases for lists, with suite, parent, and how many evaluations count for them."""
    number = _counted_for().order_by().values(all=Value(1)).annotate(n=Count("*")).values("n")
    rows = _covering().select_related("suite", "parent", "created_by")
    return rows.annotate(evaluation_count=Coalesce(Subquery(number), 0)).order_by("benchmark", "-number")


def scored_releases() -> QuerySet[Release]:
    """Those of `releases` for which any evaluation counts."""
    return releases().filter(Exists(_counted_for()))


def _covering() -> QuerySet[Release]:
    """Releases that know their task versions."""
    members = ReleaseTask.objects.filter(release=OuterRef("pk")).order_by("task_version_id")
    return Release.objects.alias(covers=ArraySubquery(members.values("task_version_id")))


def _counted_for() -> QuerySet[Evaluation]:
    """Evaluations that count for the release of the query around."""
    return measured().filter(_counts(OuterRef("pk"), OuterRef("suite_id"), OuterRef("covers")))


def get_release(benchmark: str, number: int) -> Release:
    """Raises NotFound."""
    found = releases().filter(benchmark=benchmark, number=number).first()
    if found is None:
        raise NotFound("release", f"{benchmark}-{number}")
    return found


def find(name: str) -> Release:
    """`benchmark-3`, or `benchmark` for the newest. Raises NotFound."""
    benchmark, _, number = name.rpartition("-")
    if benchmark and number.isdecimal() and len(number) < 9:
        return get_release(benchmark, int(number))
    newest = releases().filter(benchmark=name).order_by("-number").first()
    if newest is None:
        raise NotFound("release", name)
    return newest


def comparable() -> QuerySet[Evaluation]:
    """Finished evaluations with a score, without those that a person interrupted."""
    return Evaluation.objects.filter(state="finished", results__pass1__isnull=False, interruption__isnull=True)


def measured() -> QuerySet[Evaluation]:
    """Comparable evaluations that know which task versions they measured."""
    groups = Group.objects.filter(evaluation=OuterRef("pk")).order_by("task_version_id")
    return comparable().alias(covers=ArraySubquery(groups.values("task_version_id").distinct()))


def _counts(release: Any, suite: Any, covers: Any) -> Q:
    """Which of `measured()` count for a release: its own, and those of its suite that covered exactly its task versions. The
    one rule of leaderboard, list, home and suite page."""
    # The comparison of task versions comes last: it is a query for each evaluation that is left.
    return Q(release=release) | Q(release=None) & Q(suite=suite) & Q(covers=covers)


def _members(*shown: Release) -> dict[int, list[int]]:
    """Release → its task versions, sorted."""
    found: dict[int, list[int]] = {one.pk: [] for one in shown}
    rows = ReleaseTask.objects.filter(release__in=found).order_by("task_version_id")
    for release, version in rows.values_list("release_id", "task_version_id"):
        found[release].append(version)
    return found


def finished(release: Release) -> QuerySet[Evaluation]:
    """The evaluations that count for it, newest first."""
    found = measured().filter(_counts(release.pk, release.suite_id, _members(release)[release.pk]))
    return found.select_related("policy").order_by("-pk")


def scored(newest: int) -> list[tuple[Release, Evaluation]]:
    """What counts for the newest releases that have scores: of each the newest evaluation of a policy version and effort, best
    first. An evaluation counts for the newest release only that has its tasks."""
    rows = _covering().filter(Exists(_counted_for())).defer("statistics", "contamination")
    shown = list(rows.order_by("-pk")[:newest])
    if not shown:
        return []
    by_id, members = {one.pk: one for one in shown}, _members(*shown)
    of_tasks = {(one.suite_id, tuple(members[one.pk])): one.pk for one in reversed(shown)}
    lists = [Value(list(tasks), output_field=ArrayField(BigIntegerField())) for _, tasks in of_tasks]
    exactly = Q(release=None, suite__in={suite for suite, _ in of_tasks}, covers__in=lists)
    counted = measured().filter(Q(release__in=by_id) | exactly).annotate(tasks_covered=F("covers"))
    found: dict[tuple[int, str], Evaluation] = {}
    for evaluation in (
        counted.select_related("policy").defer("policy__architecture", "conditions").order_by("-pk")[:MAX_ROWS]
    ):
        release = evaluation.release_id or of_tasks.get((evaluation.suite_id, tuple(evaluation.tasks_covered)))
        if release is not None:
            found.setdefault((release, evaluation.title), evaluation)
    order = sorted(found.items(), key=lambda item: (-item[0][0], -item[1].results["pass1"]))
    return [(by_id[pk], evaluation) for (pk, _), evaluation in order]


def _newest(evaluations: QuerySet[Evaluation]) -> dict[str, Evaluation]:
    """Newest evaluation of each policy version and effort, by title."""
    found: dict[str, Evaluation] = {}
    for evaluation in evaluations[:MAX_ROWS]:
        found.setdefault(evaluation.title, evaluation)
    return found


def leaderboard(release: Release) -> list[Row]:
    """Newest evaluation of each policy version and effort, best score first."""
    newest = _newest(finished(release))
    interrupted = _newest(
        Evaluation.objects.filter(release=release, state="finished", interruption__isnull=False)
        .select_related("policy")
        .order_by("-pk")
    )
    order = sorted(newest.items(), key=lambda item: (-item[1].results["pass1"], item[0]))
    by_tokens = frontier({name: _point(e, "tokens_p50") for name, e in order})
    by_cost = frontier({name: _point(e, "cost_p50") for name, e in order})
    return [
        Row(
            evaluation=e,
            rank=rank,
            name=name,
            score=e.results["pass1"],
            low=e.results.get("pass1_low"),
            high=e.results.get("pass1_high"),
            best=e.results.get("best"),
            tokens=e.results.get("tokens_p50"),
            seconds=e.results.get("seconds_p50"),
            cost=e.results.get("cost_p50"),
            pareto_tokens=name in by_tokens,
            pareto_cost=name in by_cost,
            sides={**(interrupted[name].sides if name in interrupted else {}), **e.sides},
        )
        for rank, (name, e) in enumerate(order, start=1)
    ]


def _point(evaluation: Evaluation, resource: str) -> tuple[float | None, float]:
    return evaluation.results.get(resource), evaluation.results["pass1"]


def frontier(points: dict[str, tuple[float | None, float]]) -> set[str]:
    """Names on the Pareto front of (resource, score): nothing else scores as high for less, or higher for the same."""
    known = {name: (resource, score) for name, (resource, score) in points.items() if resource is not None}
    return {
        name
        for name, (resource, score) in known.items()
        if not any(r <= resource and s >= score and (r, s) != (resource, score) for r, s in known.values())
    }


def tasks(release: Release) -> list[TaskResult]:
    """Every task of the release in order, with its flag and all verdicts of finished evaluations."""
    mine = Rollout.objects.filter(group__evaluation__in=finished(release).order_by().values("pk"))
    counts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    rows = mine.order_by().values_list("group__task_version_id", "verdict").annotate(n=Count("pk"))
    for version, verdict, n in rows:
        counts[version][verdict] += n
    held = Quarantine.objects.filter(task_version=OuterRef("task_version"), state="active")
    members = (
        release.members.select_related("task_version__task")
        .defer("task_version__spec", "task_version__controls")
        .annotate(held=Exists(held))
        .order_by("position")
    )
    return [_standing(member, counts[member.task_version_id]) for member in members]


def _standing(member: Any, count: dict[str, int]) -> TaskResult:
    passed, failed, lost = (count.get(kind, 0) for kind in ("passed", "failed", "infra_error"))
    verdicts = passed + failed
    flag, why = "", ""
    if member.task_version.controls_ok is False:
        flag, why = "broken", "its validation fails now"
    elif member.held:
        flag, why = "broken", "it is in quarantine"
    elif lost and lost / (verdicts + lost) >= LOST_SHARE:
        flag, why = "broken", f"{lost} of {verdicts + lost} rollouts were lost to the infrastructure"
    elif verdicts >= SATURATED_ROLLOUTS and passed == verdicts:
        flag, why = "saturated", f"all {verdicts} rollouts passed"
    elif verdicts >= UNSOLVED_ROLLOUTS and not passed:
        flag, why = "unsolved", f"none of {verdicts} rollouts passed"
    return TaskResult(member, passed, verdicts, lost, flag, why)


def carried(release: Release) -> list[Carried]:
    """Newest evaluations of the previous release, on the tasks that this one kept."""
    if release.parent is None:
        return []
    shared = release.members.filter(carried=True).values("task_version_id")
    newest = _newest(finished(release.parent))
    by_id = {evaluation.pk: name for name, evaluation in newest.items()}
    shares: dict[int, list[float]] = defaultdict(list)
    rows = (
        Rollout.objects.filter(group__evaluation__in=by_id, group__task_version__in=shared)
        .filter(verdict__in=["passed", "failed"])
        .order_by()
        .values_list("group__evaluation_id", "group__task_version_id")
        .annotate(n=Count("pk"), passed=Count("pk", filter=Q(verdict="passed")))
    )
    for evaluation_id, _version, n, passed in rows:
        shares[evaluation_id].append(passed / n)
    found = [
        Carried(newest[by_id[pk]], by_id[pk], len(values), fmean(values), *mean_interval(values))
        for pk, values in shares.items()
    ]
    return sorted(found, key=lambda row: (-row.score, row.name))


def board(release: Release) -> dict[str, Any]:
    """All results of a release, for the API and the command."""
    return {
        "release": str(release),
        "standings": leaderboard(release),
        "carried": carried(release),
        "flags": [task for task in tasks(release) if task.flag],
    }
