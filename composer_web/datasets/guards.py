"""Suites that training data are decontaminated against, and whether data were decontaminated against the present ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from composer_web.core.errors import UserError
from composer_web.tasks.models import Suite, SuiteMembership, TaskVersion
from sandbox.tasks.spec import TaskSpec
from trainer.midtrain.corpus.clean import Guard

MEASURED = ("held-out", "benchmark")
CHUNK = 200


def measured_suites() -> list[str]:
    """Names of the suites that nothing may be trained on."""
    return list(Suite.objects.filter(purpose__in=MEASURED).order_by("name").values_list("name", flat=True))


def chosen(names: Sequence[str] | None, field: str = "suites") -> list[str]:
    """These suites, or all that are measured. Raises UserError naming one that is not there."""
    if names is None:
        return measured_suites()
    known = set(Suite.objects.filter(name__in=names).values_list("name", flat=True))
    if unknown := next((name for name in names if name not in known), None):
        raise UserError(field, f"there is no suite {unknown!r}; held out are: {', '.join(measured_suites()) or 'none'}")
    return sorted(known)


def guards_of(names: Sequence[str]) -> list[Guard]:
    """Each with its tasks as they are now."""
    bundles: dict[str, list[str]] = {name: [] for name in names}
    rows = SuiteMembership.objects.filter(suite__name__in=names).order_by()
    for name, bundle in rows.values_list("suite__name", "task_version__bundle_hash"):
        bundles[name].append(bundle)
    return [Guard.of(name, found) for name, found in sorted(bundles.items())]


def tasks_of(names: Sequence[str]) -> Iterator[TaskSpec]:
    versions = TaskVersion.objects.filter(suites__name__in=names).distinct().order_by("pk").only("spec")
    return (version.bundle for version in versions.iterator(CHUNK))


def unguarded(guards: Iterable[Guard]) -> list[str]:
    """Measured suites of the project that are not among `guards` with the tasks that they have now."""
    clear = {guard.digest for guard in guards}
    return [now.suite for now in guards_of(measured_suites()) if now.tasks and now.digest not in clear]
