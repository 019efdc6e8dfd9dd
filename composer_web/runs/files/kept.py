"""Trajectories that stay when those of their run are deleted, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db.models import F, QuerySet

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.core.errors import UserError
from composer_web.datasets import choosing
from composer_web.datasets.models import Dataset, DatasetRollout, DatasetState
from composer_web.review.models import Annotation, Draft, Label, QueueItem
from composer_web.rollouts.models import Fork, Rollout

Q = QuerySet[Rollout]
ANNOTATED = "annotated or labelled"


def kept(rows: Q, *, annotated: bool) -> dict[int, str]:
    """Id → why it stays, of those of the rollouts that do. `annotated`: annotations and labels alone keep none."""
    found: dict[int, str] = {}
    reasons = _reasons(rows)
    for reason, ids in reasons:
        if not (annotated and reason == ANNOTATED):
            found |= {pk: reason for pk in ids if pk not in found}
    return found


def _reasons(rows: Q) -> Iterator[tuple[str, Iterable[int]]]:
    """Reason and rollouts, those that no option overrules first."""
    ids = rows.order_by().values("pk")
    yield "continued by a fork", Fork.objects.filter(parent__in=ids).values_list("parent_id", flat=True)
    named = DatasetRollout.objects.filter(rollout__in=ids)
    yield "in a dataset", named.values_list("rollout_id", flat=True)
    for chosen in _unnamed(rows):
        yield "in a dataset", chosen
    open_drafts = Draft.objects.filter(rollout__in=ids).exclude(state__in=["published", "discarded"])
    yield "in a draft of a task", open_drafts.values_list("rollout_id", flat=True)
    awaited = QueueItem.objects.filter(rollout__in=ids, queue__closed_at=None, labelled_by__lt=F("queue__reviewers"))
    yield "waiting for reviewers", awaited.values_list("rollout_id", flat=True)
    yield ANNOTATED, Annotation.objects.filter(rollout__in=ids, removed_at=None).values_list("rollout_id", flat=True)
    yield ANNOTATED, Label.objects.filter(item__rollout__in=ids).values_list("item__rollout_id", flat=True)


def _unnamed(rows: Q) -> Iterator[Iterable[int]]:
    """Rollouts that datasets choose by filters and have not named: they wait, or were made before rollouts were named."""
    datasets = Dataset.objects.filter(wanted__has_key="rollouts", sources=None).exclude(wanted__rollouts="")
    datasets = datasets.exclude(state=DatasetState.FAILED)
    projects = set(rows.order_by().values_list("project_id", flat=True).distinct()) if datasets.exists() else set()
    for dataset in datasets.filter(project__in=projects):
        project = dataset.project_id or DEFAULT_PROJECT
        with acting(Access(0, "viewer", project, project)):
            try:
                chosen = choosing.chosen(str(dataset.wanted.get("rollouts", "")))
            except UserError:  # it names what is gone, such as a suite: it cannot be prepared again
                continue
            yield chosen.filter(pk__in=rows.order_by().values("pk")).order_by().values_list("pk", flat=True)
