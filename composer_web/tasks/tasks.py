"""Celery tasks of tasks: short and idempotent."""

from __future__ import annotations

from typing import Any

from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.core.work import task
from composer_web.tasks import services
from composer_web.tasks.models import Suite


class ControlsNotGraded(Exception):
    """The sandbox failed during some controls. They are retried."""


@task(
    "tasks.run_controls",
    queue="build",
    lease="controls:{version_ids[0]}",
    bind=True,
    max_retries=3,
    default_retry_delay=5,
)
def run_controls(self: Any, *, version_ids: list[int], again: bool = False, **_: Any) -> None:
    """Run the controls that these versions need for training; versions with controls are skipped. `again`: rerun all
    controls."""
    from composer_web.tasks.controls import run_again, run_pending

    if failed := (run_again if again else run_pending)(version_ids):
        raise self.retry(exc=ControlsNotGraded("; ".join(failed)[:500]))


@task("tasks.validate_suite", queue="control", seconds=300)
def validate_suite(*, suite_id: int, **_: Any) -> None:
    services.request_suite_controls(suite=Suite.objects.get(pk=suite_id))


@task("tasks.record_statistics", queue="maintenance", seconds=600)
def record_statistics(*, evaluation_id: int, **_: Any) -> None:
    from composer_web.tasks.difficulty import record_statistics

    record_statistics(evaluation_id=evaluation_id)


@task("tasks.generate", queue="build", lease="generate:{order}")
def generate(*, wanted: dict[str, Any], project: int = DEFAULT_PROJECT, order: int = 0, **_: Any) -> None:
    """Execute an order once. Messages of earlier product versions name neither project nor order."""
    from composer_web.tasks.generating import Wanted, carry_out

    carry_out(Wanted.model_validate(wanted), project=project, order=order)


@task("tasks.build_package_suites", queue="build", lease="package-suites")
def build_package_suites(*, count: int = 4, seed: int = 0, **_: Any) -> None:
    """Build the suites `packages` and `packages-held-out` from mutation tasks of all locked packages."""
    from composer_web.repositories.building import locked_packages, mutation_specs

    for name, purpose in services.PACKAGE_SUITES.items():
        specs = mutation_specs(packages=sorted(locked_packages()), count=count, seed=seed, split=purpose)
        if specs:
            services.build_packages_suite(name=name, purpose=purpose, specs=specs, seed=seed)
