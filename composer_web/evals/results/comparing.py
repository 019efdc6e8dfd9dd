"""Task-by-task comparison of two evaluations: regressions, improvements, and rollouts that show them; history of a
task."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import comb
from statistics import fmean

from composer_web.core.errors import UserError
from composer_web.evals.models import Evaluation
from composer_web.rollouts.models import Rollout
from composer_web.tasks.models import Task, TaskVersion
from trainer.rl.evaluate import mean_interval

SIGNIFICANCE = 0.05
"""A task's change is significant below this p-value."""
MAX_HISTORY = 200


@dataclass
class Side:
    """One task in one evaluation."""

    group: int = 0
    passed: list[int] = field(default_factory=list)
    """Rollout ids."""
    failed: list[int] = field(default_factory=list)
    lost: int = 0

    @property
    def verdicts(self) -> int:
        return len(self.passed) + len(self.failed)

    @property
    def share(self) -> float:
        return len(self.passed) / self.verdicts if self.verdicts else 0.0


@dataclass(frozen=True)
class Change:
    """A task in both evaluations. `chance` is the p-value of the difference (Fisher's exact test)."""

    version: TaskVersion
    before: Side
    after: Side
    chance: float

    @property
    def difference(self) -> float:
        return self.after.share - self.before.share

    @property
    def significant(self) -> bool:
        return self.chance < SIGNIFICANCE

    @property
    def word(self) -> str:
        """worse, better or same."""
        if not self.difference:
            return "same"
        return "worse" if self.difference < 0 else "better"

    @property
    def verdict(self) -> str:
        """worse, better, clearly worse, clearly better, or same."""
        return f"clearly {self.word}" if self.difference and self.significant else self.word

    @property
    def shows_before(self) -> int | None:
        """A rollout of the first evaluation that shows the change: a pass for a regression."""
        return _first(self.before.passed if self.difference < 0 else self.before.failed)

    @property
    def shows_after(self) -> int | None:
        return _first(self.after.failed if self.difference < 0 else self.after.passed)


@dataclass(frozen=True)
class Comparison:
    """Two evaluations on their common tasks. `difference` is the mean over tasks, second minus first."""

    before: Evaluation
    after: Evaluation
    changes: list[Change]
    """Worst first."""
    only_one: int
    """Number of tasks with a verdict in only one of them."""
    difference: float
    low: float
    high: float

    def count(self, word: str) -> int:
        return sum(change.word == word for change in self.changes)

    @property
    def significant(self) -> bool:
        """Whether the interval of the mean difference excludes zero."""
        return self.low > 0 or self.high < 0


def compare(before: Evaluation, after: Evaluation) -> Comparison:
    """Raises UserError without a common task that has verdicts."""
    found = _sides([before.pk, after.pk])
    old, new = found[before.pk], found[after.pk]
    shared = [pk for pk in old if pk in new and old[pk].verdicts and new[pk].verdicts]
    if not shared:
        raise UserError("evaluations", f"evaluations {before.pk} and {after.pk} share no task with a verdict")
    versions = TaskVersion.objects.filter(pk__in=shared).select_related("task").defer("spec", "controls").in_bulk()
    changes = [Change(versions[pk], old[pk], new[pk], p_value(old[pk], new[pk])) for pk in shared]
    changes.sort(key=lambda change: (change.difference, change.chance, change.version.task.slug))
    differences = [change.difference for change in changes]
    # The interval of shares knows no value below 0: half the difference, moved up, is a share.
    low, high = (2.0 * end - 1.0 for end in mean_interval([(value + 1.0) / 2.0 for value in differences]))
    everything = {*old, *new}
    return Comparison(before, after, changes, len(everything) - len(shared), fmean(differences), low, high)


def _sides(evaluations: list[int]) -> dict[int, dict[int, Side]]:
    """Evaluation → task version → outcomes of its rollouts. One query."""
    found: dict[int, dict[int, Side]] = {pk: defaultdict(Side) for pk in evaluations}
    rows = Rollout.objects.filter(group__evaluation__in=evaluations).order_by("pk")
    for evaluation, version, group, pk, verdict in rows.values_list(
        "group__evaluation_id", "group__task_version_id", "group_id", "pk", "verdict"
    ):
        side = found[evaluation][version]
        side.group = group
        if verdict == "infra_error":
            side.lost += 1
        elif verdict:
            (side.passed if verdict == "passed" else side.failed).append(pk)
    return found


def _first(ids: list[int]) -> int | None:
    return ids[0] if ids else None


def p_value(before: Side, after: Side) -> float:
    """Two-sided Fisher's exact test: the sum over all tables no likelier than the observed one."""
    n, m, passes = before.verdicts, after.verdicts, len(before.passed) + len(after.passed)
    whole = comb(n + m, passes)
    weights = [comb(n, k) * comb(m, passes - k) for k in range(max(0, passes - m), min(n, passes) + 1)]
    seen = comb(n, len(before.passed)) * comb(m, len(after.passed))
    return sum(weight for weight in weights if weight <= seen) / whole


@dataclass(frozen=True)
class Entry:
    """One evaluation of a task."""

    evaluation: Evaluation
    number: int
    """Result for this version of the task."""
    side: Side


def history(task: Task) -> list[Entry]:
    """Newest evaluations that include this task in any version, newest first. Two queries."""
    sides: dict[tuple[int, int], Side] = {}
    newest = (
        Evaluation.objects.filter(groups__task_version__task=task, state="finished")
        .order_by("-pk")
        .distinct()
        .values_list("pk", flat=True)[:MAX_HISTORY]
    )
    rows = Rollout.objects.filter(group__task_version__task=task, group__evaluation__in=list(newest)).order_by("pk")
    for evaluation, number, group, pk, verdict in rows.values_list(
        "group__evaluation_id", "group__task_version__number", "group_id", "pk", "verdict"
    ):
        side = sides.setdefault((evaluation, number), Side(group))
        if verdict == "infra_error":
            side.lost += 1
        elif verdict:
            (side.passed if verdict == "passed" else side.failed).append(pk)
    known = Evaluation.objects.select_related("policy", "suite", "release").in_bulk([pk for pk, _ in sides])
    return [
        Entry(known[evaluation], number, side)
        for (evaluation, number), side in sorted(sides.items(), key=lambda item: -item[0][0])
    ]
