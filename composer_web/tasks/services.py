"""Writes of tasks and suites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.core.queue.outbox import enqueue_many
from composer_web.live.hints import hint
from composer_web.repositories.models import Environment
from composer_web.tasks.models import Suite, SuiteMembership, Task, TaskVersion
from composer_web.tasks.overlap import drop_duplicates, refuse_overlap
from composer_web.tasks.reviewing import require_admitted
from sandbox.grading.controls.flaky import without_tests
from sandbox.grading.verifiers.admission import refusal_of
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec

BATCH = 500
CONTROLS_CHUNK = 16
"""Versions per message to the build workers. They share a sandbox backend."""
AGAIN_CHUNK = 2
"""Running all controls of a task takes a hundred times the work of those required for training."""


@transaction.atomic
def save_specs(specs: Sequence[TaskSpec]) -> list[TaskVersion]:
    """One task version for each bundle, in order; a bundle that is already there is not stored again.

    A known task id with a new bundle becomes its next version. Raises UserError when two bundles of one call
    share an id, when a built environment is not known, or when a verifier cannot be trusted
    (`sandbox.grading.verifiers.admission`).
    """
    hashes = [spec.bundle_hash for spec in specs]
    if len({spec.id for spec in specs}) < len(set(hashes)):
        raise UserError("tasks", "two different bundles have the same task id; give each its own")
    known = {v.bundle_hash: v for v in TaskVersion.objects.filter(bundle_hash__in=hashes)}
    fresh = {digest: spec for digest, spec in zip(hashes, specs, strict=True) if digest not in known}
    for spec in fresh.values():
        if (refusal := refusal_of(spec)) is not None:
            raise UserError(refusal.field, f"task {spec.id}: {refusal}")
    environments = _environments(fresh.values())
    Task.objects.bulk_create(
        [Task(slug=s.id, source=s.source, category=s.category, family=s.family) for s in fresh.values()],
        ignore_conflicts=True,
        batch_size=BATCH,
    )
    tasks = {
        task.slug: task for task in Task.objects.filter(slug__in=[s.id for s in fresh.values()]).select_for_update()
    }
    if taken := [spec.id for spec in fresh.values() if spec.id not in tasks]:
        raise UserError("tasks", f"the task id {taken[0]!r} is taken in another project; give the task another one")
    numbers: dict[int, int] = {}
    for task_id, number in TaskVersion.objects.filter(task__in=tasks.values()).values_list("task_id", "number"):
        numbers[task_id] = max(number, numbers.get(task_id, 0))
    made = TaskVersion.objects.bulk_create(
        [
            TaskVersion(
                task=tasks[s.id],
                number=numbers.get(tasks[s.id].pk, 0) + 1,
                spec=s.model_dump(mode="json"),
                bundle_hash=digest,
                environment=environments.get(s.environment.digest)
                if isinstance(s.environment, BuiltEnvironment)
                else None,
            )
            for digest, s in fresh.items()
        ],
        batch_size=BATCH,
    )
    known.update({version.bundle_hash: version for version in made})
    if made:
        hint("tasks")
    return [known[digest] for digest in hashes]


def _environments(specs: Iterable[TaskSpec]) -> dict[str, Environment]:
    digests = {s.environment.digest for s in specs if isinstance(s.environment, BuiltEnvironment)}
    found = {e.digest: e for e in Environment.objects.filter(digest__in=digests) if e.digest}
    if missing := digests - found.keys():
        raise UserError("environment", f"no ready environment has digest {sorted(missing)[0]}; build it first")
    return found


@transaction.atomic
def build_suite(
    *,
    name: str,
    purpose: str,
    specs: Sequence[TaskSpec],
    description: str = "",
    recipe: dict[str, Any] | None = None,
    validate: bool = False,
    actor: User | None = None,
) -> Suite:
    """Create a suite of these bundles in this order, or replace the membership of one that no run has used.

    `validate` sends the controls of each new version to the build workers. Raises UserError, Conflict.
    """
    if not specs:
        raise UserError("tasks", "a suite needs at least one task")
    refuse_overlap(specs, purpose=purpose)
    suite, created = Suite.objects.select_for_update().get_or_create(name=name, defaults={"purpose": purpose})
    versions = list(dict.fromkeys(save_specs(specs)))
    before = list(suite.memberships.order_by("position").values_list("task_version_id", flat=True))
    if before == [v.pk for v in versions]:
        return suite
    if not created and suite.memberships.filter(task_version__groups__isnull=False).exists():
        raise Conflict(f"suite {name!r} has been used and may not change; build it under a new name", "name")
    if suite.reviewed:
        require_admitted(versions)
    suite.purpose, suite.description, suite.recipe = purpose, description, recipe or {}
    suite.full_clean(exclude=["recipe"])
    suite.save(update_fields=["purpose", "description", "recipe"])
    suite.memberships.all().delete()
    SuiteMembership.objects.bulk_create(
        [SuiteMembership(suite=suite, task_version=v, position=i) for i, v in enumerate(versions)], batch_size=2000
    )
    if validate:
        request_controls([v.pk for v in versions if v.proof is None])
    suite.refresh_from_db(fields=["task_count", "valid_count", "rejected_count"])
    audit(actor=actor, action="suite.build", target=f"suite:{suite.pk}", name=name, tasks=len(versions))
    hint("suites", f"suite:{suite.pk}")
    return suite


def build_procedural(
    *,
    n_train: int,
    n_held_out: int,
    seed: int = 0,
    train: str = "train",
    held_out: str = "held-out",
    actor: User | None = None,
) -> tuple[Suite, Suite]:
    """Create the procedural suites from one seed, with disjoint families and identifiers in `train` and `held_out`."""
    from sandbox.tasks.procedural import generate

    suites = []
    for name, purpose, count in ((train, "train", n_train), (held_out, "held-out", n_held_out)):
        specs = [generate(seed * 1_000_000 + index, purpose) for index in range(count)]  # type: ignore[arg-type]
        recipe = {"generator": "procedural", "split": purpose, "seed": seed, "count": count}
        text = f"{count} generated one-bug repositories, {purpose} split, seed {seed}"
        suites.append(
            build_suite(name=name, purpose=purpose, specs=specs, description=text, recipe=recipe, actor=actor)
        )
    return suites[0], suites[1]


PACKAGE_SUITES = {"packages": "train", "packages-held-out": "held-out"}
"""Suites of mutation tasks on real packages, by name → purpose and split."""


def build_packages_suite(
    *, name: str, purpose: str, specs: Sequence[TaskSpec], seed: int, validate: bool = True
) -> Suite:
    """Build one of PACKAGE_SUITES from mutation tasks, keeping the first of near-duplicates. Raises UserError,
    Conflict."""
    specs = drop_duplicates(specs)
    recipe = {"generator": "mutation", "seed": seed, "split": purpose, "count": len(specs)}
    text = f"Bugs planted in functions of real packages, {purpose} split; hidden tests are the packages' own"
    return build_suite(name=name, purpose=purpose, specs=specs, description=text, recipe=recipe, validate=validate)


def request_controls(version_ids: Sequence[int], *, again: bool = False) -> None:
    """Request controls of these versions from the build workers: those required for training, or all with `again`."""
    size = AGAIN_CHUNK if again else CONTROLS_CHUNK
    chunks = [list(version_ids[i : i + size]) for i in range(0, len(version_ids), size)]
    key = "controls-again" if again else "controls"
    enqueue_many([("tasks.run_controls", {"version_ids": c, "again": again}, "build", f"{key}:{c[0]}") for c in chunks])


@transaction.atomic
def request_suite_controls(*, suite: Suite, actor: User | None = None) -> int:
    """Request controls for every version of the suite without any of the present grading. Returns their number."""
    wanted = list(suite.versions.filter(TaskVersion.unproved()).values_list("pk", flat=True))
    request_controls(wanted)
    audit(actor=actor, action="suite.validate", target=f"suite:{suite.pk}", tasks=len(wanted))
    return len(wanted)


@transaction.atomic
def request_task_controls(*, versions: Sequence[TaskVersion], actor: User | None = None) -> int:
    """Request controls of these versions, again if they have some. Returns their number."""
    request_controls([version.pk for version in versions], again=True)
    for version in versions:
        audit(actor=actor, action="task.validate", target=f"task_version:{version.pk}")
    return len(versions)


@transaction.atomic
def record_controls(*, version: TaskVersion, controls: dict[str, Any], ok: bool) -> TaskVersion:
    """Store the outcome of the controls, bound to the bundle's hash. Raises UserError for another bundle's hash."""
    if controls.get("bundle_hash") != version.bundle_hash:
        raise UserError(
            "controls", f"these controls are of bundle {controls.get('bundle_hash')!r}, not {version.bundle_hash!r}"
        )
    # Suites before their versions, as in `build_suite`: their counts change with the controls.
    list(version.suites.select_for_update(no_key=True, of=("self",)).order_by("pk").only("pk"))
    version.controls, version.controls_ok, version.controls_at = controls, ok, timezone.now()
    version.test_strength = controls.get("strength")
    version.save(update_fields=["controls", "controls_ok", "controls_at", "test_strength"])
    hint("tasks", "suites", *(f"suite:{pk}" for pk in version.suites.values_list("pk", flat=True)))
    return version


@transaction.atomic
def quarantine_tests(*, version: TaskVersion, ids: Sequence[str], actor: User | None = None) -> TaskVersion | None:
    """The next version of a task, without hidden tests that do not always pass; it takes the old one's place in suites
    that no run has used and that need no reviews, and its controls are asked for.

    None when nothing would be left to decide by.
    """
    steady = without_tests(version.bundle, ids)
    if steady is None:
        return None
    (made,) = save_specs([steady])
    unused = version.memberships.exclude(suite__versions__groups__isnull=False).exclude(suite__reviewed=True)
    SuiteMembership.objects.filter(pk__in=list(unused.values_list("pk", flat=True))).update(task_version=made)
    request_controls([made.pk])
    audit(actor=actor, action="task.quarantine", target=f"task_version:{version.pk}", tests=list(ids), next=made.number)
    hint("suites")
    return made
