"""Celery tasks of tasks: short and idempotent."""

from __future__ import annotations

import threading
from typing import Any

from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue
from composer_web.core.queue.work import AGAIN_SECONDS, LEASE_SECONDS, task
from composer_web.tasks import services
from composer_web.tasks.models import Suite


class ControlsNotGraded(Exception):
    """The sandbox failed during some controls. They are retried."""


@task(
    "tasks.run_controls",
    queue="build",
    lease="controls:{version_ids}",  # of each version by itself
    inside=True,
    bind=True,
    max_retries=3,
    default_retry_delay=5,
)
def run_controls(self: Any, *, version_ids: list[int], again: bool = False, **_: Any) -> None:
    """Run the controls that these versions need for training; versions with controls are skipped. `again`: rerun all
    controls. Each version has a lease: what another worker grades is asked for again later, and then skipped."""
    from composer_web.tasks.controls import resource, run_again, run_pending

    owner = f"{leases.identity('controls')}/{threading.get_ident() % 10_000}"
    names = {resource(pk): pk for pk in version_ids}
    with leases.each_free(names, owner=owner, seconds=LEASE_SECONDS) as held:
        if rest := [pk for name, pk in names.items() if name not in held]:
            later = {"version_ids": rest, "again": again}
            enqueue("tasks.run_controls", later, queue="build", key=f"again:controls:{rest}"[:120], delay=AGAIN_SECONDS)
        mine = {names[name]: lease for name, lease in held.items()}
        failed = (run_again if again else run_pending)(list(mine), held=mine)
    if failed:
        raise self.retry(exc=ControlsNotGraded("; ".join(failed)[:500]))


@task("tasks.validate_suite", queue="control", seconds=300)
def validate_suite(*, suite_id: int, **_: Any) -> None:
    services.request_suite_controls(suite=Suite.objects.get(pk=suite_id))


@task("tasks.generate", queue="build", lease="generate:{job}")
def generate(*, wanted: dict[str, Any], job: int = 0, project: int = DEFAULT_PROJECT, order: int = 0, **_: Any) -> None:
    """Carry out a generation job once. Messages of 0.2 and earlier call it `order` (migration 0017 kept the number)."""
    from composer_web.tasks.generating import Wanted, carry_out

    carry_out(Wanted.model_validate(wanted), project=project, job=job or order)


@task("tasks.build_package_suites", queue="build", lease="package-suites")
def build_package_suites(*, count: int = 4, seed: int = 0, **_: Any) -> None:
    """Build the suites `packages` and `packages-held-out` from mutation tasks of all locked packages."""
    from composer_web.repositories.building import locked_packages, mutation_specs

    for name, purpose in services.PACKAGE_SUITES.items():
        specs = mutation_specs(packages=sorted(locked_packages()), count=count, seed=seed, split=purpose)
        if specs:
            services.build_packages_suite(name=name, purpose=purpose, specs=specs, seed=seed)
