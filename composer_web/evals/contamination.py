"""Whether training suites hold a release's tasks: compared by content (`sandbox.tasks.overlap`), not by name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.utils import timezone
from pydantic import BaseModel, ConfigDict

from composer_web.evals.models import Release
from composer_web.tasks.models import Suite, TaskVersion
from sandbox.tasks.overlap import Index, print_of
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec

CHUNK = 200
MOST_HITS = 200


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
    """How a file begins as far as the bundle says: of a built environment only what is laid over it."""
    environment = task.environment
    files = environment.overrides if isinstance(environment, BuiltEnvironment) else environment.files
    return files.get(path, "")


def compare(release: Iterable[TaskSpec], training: Iterable[TaskSpec]) -> tuple[int, list[Hit]]:
    """How many training tasks were read, and the pairs that are nearly the same."""
    index = Index()
    for task in release:
        index.add(print_of(task, carried_text))
    read = 0
    hits: list[Hit] = []
    for task in training:
        read += 1
        pair = index.near(print_of(task, carried_text))
        if pair is not None and len(hits) < MOST_HITS:
            hits.append(Hit(task=pair.second, training=pair.first, share=pair.share, why=pair.why))
    return read, hits


def check(release: Release) -> Contamination:
    """Compare with every training suite as it is now, and keep the outcome with the release."""
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
    release.contamination = found.model_dump(mode="json")
    release.save(update_fields=["contamination"])
    return found
