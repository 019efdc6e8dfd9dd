"""Detector over tasks: reviewers who disagree."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count
from django.urls import reverse

from composer_web.core.detectors import Detector, Insight, register
from composer_web.tasks.models import ReviewState, Task


def disputed_tasks() -> Iterator[Insight]:
    """Reviewers of a task decided differently. It joins no suite until a third one decides."""
    rows = Task.objects.filter(review=ReviewState.DISPUTED).values_list("project").annotate(count=Count("pk"))
    for project, count in rows.order_by("project"):
        yield Insight(
            f"project:{project}",
            "Reviewers disagree",
            f"reviewers disagree about {count} task{'' if count == 1 else 's'}",
            "Read both reviews and decide.",
            reverse("tasks:disagreements"),
        )


def install() -> None:
    """Register it. Called once, by `AppConfig.ready()`."""
    meaning = " ".join((disputed_tasks.__doc__ or "").split())
    register(Detector("disputed-tasks", "Reviewers disagree", meaning, "low", disputed_tasks))
