"""Detector over review queues: reviewers who gave different labels to a rollout."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, Exists, OuterRef
from django.urls import reverse

from composer_web.core.detectors import Detector, Insight, register
from composer_web.review.models import Answer, QueueItem

MAX_QUEUES = 10


def disputed_rollouts() -> Iterator[Insight]:
    """Reviewers of a rollout gave different answers to a question of an open queue. Labels without a majority change nothing."""
    # Everybody answers every question, so an answer that not all of a rollout's reviewers gave is one on which they differ.
    differs = (
        Answer.objects.filter(item=OuterRef("pk"))
        .order_by()
        .values("question", "value")
        .annotate(gave=Count("pk"))
        .filter(gave__lt=OuterRef("labelled_by"))
    )
    rows = QueueItem.objects.filter(Exists(differs), labelled_by__gte=2, queue__closed_at=None)
    counts = rows.order_by().values_list("queue__name", "queue__title").annotate(count=Count("pk"))
    for name, title, count in counts.order_by("-count", "queue__name")[:MAX_QUEUES]:
        yield Insight(
            f"review:{name}",
            "Reviewers disagree",
            f"reviewers disagree about {count} rollout{'' if count == 1 else 's'} of the queue {title or name}",
            "Read their labels; make the question clearer, or close the queue once it is settled.",
            f"{reverse('review:queue', args=[name])}#disagreements",
        )


def install() -> None:
    """Register it. Called once, by `AppConfig.ready()`."""
    meaning = " ".join((disputed_rollouts.__doc__ or "").split())
    register(Detector("disputed-rollouts", "Reviewers disagree about rollouts", meaning, "low", disputed_rollouts))
