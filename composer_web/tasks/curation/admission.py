"""Which tasks can join a suite, how many cannot and why, and the obstacles of one task with the way around each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from composer_web.tasks.curation.training import LIVE_TRAINING, Holding, holdings
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
class LeftOut:
    """Tasks that a queue into a suite leaves out."""

    count: int
    why: str
    query: str
    """Filters of the task list that show them."""


def _blocked(suite: Suite) -> dict[str, tuple[Q, str]]:
    """Reason → condition on tasks, and the filters that list them. A task counts for the first that holds."""
    member = SuiteMembership.objects.filter(suite=suite, task=OuterRef("pk"))
    found: dict[str, tuple[Q, str]] = {
        f"in {suite.name} already": (Q(Exists(member)), f"suite={suite.name}"),
        "fail their controls": (Q(controls_ok=False), "controls=false"),
    }
    if suite.purpose == "train":
        other = SuiteMembership.objects.filter(task=OuterRef("pk")).exclude(suite__purpose="train")
        found["in held-out suites or benchmarks"] = (Q(Exists(other)), "")
        found["on the split held-out or benchmark"] = (Q(split__in=["held-out", "benchmark"]), "")
    else:
        held = SuiteMembership.objects.filter(LIVE_TRAINING, task=OuterRef("pk"))
        found["in training suites"] = (Q(Exists(held)), "")
        found["on the split train"] = (Q(split="train"), "split=train")
    return found


def admissible(rows: QuerySet[Task], suite: Suite) -> QuerySet[Task]:
    """The tasks that could join the suite, up to content that nearly equals another task's, which joining compares."""
    for condition, _ in _blocked(suite).values():
        rows = rows.exclude(condition)
    return rows


def left_out(rows: QuerySet[Task], suite: Suite) -> list[LeftOut]:
    """Numbers of the tasks that `admissible` leaves out, by their first reason. One query."""
    conditions, before = {}, Q()
    for index, (condition, _) in enumerate(_blocked(suite).values()):
        conditions[f"n{index}"] = Count("pk", filter=condition & ~before if before else condition)
        before = before | condition
    counts = rows.order_by().aggregate(**conditions)
    return [
        LeftOut(counts[f"n{index}"], why, query)
        for index, (why, (_, query)) in enumerate(_blocked(suite).items())
        if counts[f"n{index}"]
    ]


def obstacles(task: Task, version: TaskVersion, suite: Suite) -> list[Obstacle]:
    """Everything that keeps the task out of the suite, each with the fix that the page offers."""
    found: list[Obstacle] = []
    if version.controls_ok is False:
        found.append(Obstacle(f"version {version.number} fails its validation"))
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
