"""Contamination check of a release against training suites, by content (`sandbox.tasks.overlap`) instead of name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.utils import timezone
from pydantic import BaseModel, ConfigDict

from composer_web.core.queue import leases
from composer_web.evals.models import Release
from composer_web.tasks.models import Suite, TaskVersion
from sandbox.tasks.overlap import Index, print_of
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec

CHUNK = 200
MAX_HITS = 200


class Hit(BaseModel):
    """A task of the release and one of a training suite that is nearly the same."""

    model_config = ConfigDict(frozen=True)

    task: str
    training: str
    share: float
    why: str


class Contamination(BaseModel):
    model_config = ConfigDict(frozen=True)

    checked_at: datetime
    suites: tuple[str, ...]
    training_tasks: int
    hits: tuple[Hit, ...]


def carried_text(task: TaskSpec, path: str) -> str:
    """Beginning of a file as far as the bundle contains it. For a built environment, only its overrides."""
    environment = task.environment
    files = environment.overrides if isinstance(environment, BuiltEnvironment) else environment.files
    return files.get(path, "")


def compare(release: Iterable[TaskSpec], training: Iterable[TaskSpec]) -> tuple[int, list[Hit]]:
    """Number of training tasks read, and pairs of near duplicates."""
    index = Index()
    for task in release:
        index.add(print_of(task, carried_text))
    read = 0
    hits: list[Hit] = []
    for task in training:
        leases.check()
        read += 1
        pair = index.near(print_of(task, carried_text))
        if pair is not None and len(hits) < MAX_HITS:
            hits.append(Hit(task=pair.second, training=pair.first, share=pair.share, why=pair.why))
    return read, hits


def check(release: Release) -> Contamination:
    """Compare with the current training suites, and store the result with the release."""
    suites = Suite.objects.filter(purpose="train")
    training = TaskVersion.objects.filter(suites__in=suites).distinct().order_by("pk").only("spec")
    own = release.versions.order_by("pk").only("spec")
    read, hits = compare(
        (version.bundle for version in own.iterator(CHUNK)), (version.bundle for version in training.iterator(CHUNK))
    )
    found = Contamination(
        checked_at=timezone.now(),
        suites=tuple(suites.order_by("name").values_list("name", flat=True)),
        training_tasks=read,
        hits=tuple(hits),
    )
    with transaction.atomic():
        leases.fence()
        release.contamination = found.model_dump(mode="json")
        release.save(update_fields=["contamination"])
    return found
