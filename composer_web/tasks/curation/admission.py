"""Which tasks can join a suite, how many cannot and why, and the obstacles of one task with the way around each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from composer_web.core.errors import UserError
from composer_web.tasks.curation.training import LIVE_TRAINING, Holding, consequences, holdings
from composer_web.tasks.models import Suite, SuiteMembership, Task, TaskVersion

Fix = Literal["leave_training", "split", "controls", ""]
"""What the page offers against an obstacle."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a task cannot join a suite now."""

    why: str
    fix: Fix = ""
    consequences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    """Why tasks cannot join a suite. A task has the first that holds. `key` names it in addresses."""

    key: str
    why: str
    holds: Q
    fix: Fix = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Tasks that a queue into a suite leaves out, what all of them can be helped by, and what that changes elsewhere."""

    count: int
    key: str
    why: str
    fix: Fix
    consequences: tuple[str, ...] = ()


def reasons(suite: Suite) -> list[Reason]:
    member = SuiteMembership.objects.filter(suite=suite, task=OuterRef("pk"))
    found = [
        Reason("member", f"in {suite.name} already", Q(Exists(member))),
        Reason("rejected", "fail their validation", Q(controls_ok=False), "controls"),
    ]
    if suite.purpose == "train":
        other = SuiteMembership.objects.filter(task=OuterRef("pk")).exclude(suite__purpose="train")
        return [
            *found,
            Reason("measuring", "in held-out suites or benchmarks", Q(Exists(other))),
            Reason("held-out", "on the split held-out", Q(split="held-out"), "split"),
            Reason("benchmark", "on the split benchmark", Q(split="benchmark"), "split"),
        ]
    held = SuiteMembership.objects.filter(LIVE_TRAINING, task=OuterRef("pk"))
    return [
        *found,
        Reason("training", "in training suites", Q(Exists(held)), "leave_training"),
        Reason("train", "on the split train", Q(split="train"), "split"),
    ]


def _first(suite: Suite) -> list[tuple[Reason, Q]]:
    """Each reason with the condition that it is the first of a task."""
    found, before = [], Q()
    for reason in reasons(suite):
        found.append((reason, reason.holds & ~before if before else reason.holds))
        before = before | reason.holds
    return found


def admissible(rows: QuerySet[Task], suite: Suite) -> QuerySet[Task]:
    """The tasks that could join the suite, up to content that nearly equals another task's, which joining compares."""
    for reason in reasons(suite):
        rows = rows.exclude(reason.holds)
    return rows


def left_out(rows: QuerySet[Task], suite: Suite) -> list[LeftOut]:
    """The tasks that `admissible` leaves out, counted by reason in one query."""
    conditions = _first(suite)
    counts = rows.order_by().aggregate(
        **{f"n{index}": Count("pk", filter=condition) for index, (_, condition) in enumerate(conditions)}
    )
    return [
        LeftOut(
            counts[f"n{index}"],
            reason.key,
            reason.why,
            reason.fix,
            tuple(consequences(rows.filter(condition))) if reason.fix == "leave_training" else (),
        )
        for index, (reason, condition) in enumerate(conditions)
        if counts[f"n{index}"]
    ]


def left_out_by(rows: QuerySet[Task], suite: Suite, key: str) -> tuple[Reason, QuerySet[Task]]:
    """The tasks of one reason. Raises UserError for a reason that the suite does not have."""
    for reason, condition in _first(suite):
        if reason.key == key:
            return reason, rows.filter(condition)
    known = ", ".join(reason.key for reason in reasons(suite))
    raise UserError("left_out", f"{suite.name} leaves tasks out for: {known}; not {key[:40]!r}")


def obstacles(task: Task, version: TaskVersion, suite: Suite) -> list[Obstacle]:
    """Everything that keeps the task out of the suite, each with the fix that the page offers."""
    found: list[Obstacle] = []
    if version.controls_ok is False:
        found.append(Obstacle(f"version {version.number} fails its validation", "controls"))
    if suite.purpose == "train":
        others = Suite.objects.filter(memberships__task=task).exclude(purpose="train").distinct().order_by("name")
        if names := list(others.values_list("name", flat=True)):
            found.append(Obstacle(f"it is in {', '.join(names)}, which measures policies"))
        if task.split in ("held-out", "benchmark"):
            found.append(Obstacle(f"it is on the split {task.split}", "split"))
        return found
    held: list[Holding] = holdings(task)
    if held:
        names = [one.suite.name for one in held]
        found.append(
            Obstacle(
                f"it is in training suite{'s' * (len(held) != 1)} {', '.join(names)}",
                "leave_training",
                tuple(one.consequence for one in held),
            )
        )
    elif task.split == "train":
        found.append(Obstacle("it is on the split train", "split"))
    return found
