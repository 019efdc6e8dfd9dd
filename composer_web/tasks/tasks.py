"""Celery tasks of tasks: thin, idempotent."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.tasks import services
from composer_web.tasks.models import Suite


class ControlsNotGraded(Exception):
    """The sandbox failed under some controls; they are tried again."""


@shared_task(name="tasks.run_controls", bind=True, max_retries=3, default_retry_delay=5)
def run_controls(self: Any, *, version_ids: list[int], again: bool = False, **_: Any) -> None:
    """What these versions need to train; one that has its controls is left alone. `again`: all controls, once more."""
    from composer_web.tasks.controls import run_again, run_pending

    if failed := (run_again if again else run_pending)(version_ids):
        raise self.retry(exc=ControlsNotGraded("; ".join(failed)[:500]))


@shared_task(name="tasks.validate_suite")
def validate_suite(*, suite_id: int, **_: Any) -> None:
    services.request_suite_controls(suite=Suite.objects.get(pk=suite_id))


@shared_task(name="tasks.record_statistics")
def record_statistics(*, evaluation_id: int, **_: Any) -> None:
    from composer_web.tasks.difficulty import record_statistics

    record_statistics(evaluation_id=evaluation_id)


@shared_task(name="tasks.generate")
def generate(*, wanted: dict[str, Any], project: int = DEFAULT_PROJECT, **_: Any) -> None:
    """`project` is that of the order; orders of before there was one went to the default project."""
    from composer_web.tasks.generating import Wanted, carry_out

    carry_out(Wanted.model_validate(wanted), project=project)


@shared_task(name="tasks.build_package_suites")
def build_package_suites(*, count: int = 4, seed: int = 0, **_: Any) -> None:
    """Mutation tasks of all locked packages as the suites `packages` and `packages-held-out`."""
    from composer_web.repositories.building import locked_packages, mutation_specs

    for name, purpose in services.PACKAGE_SUITES.items():
        specs = mutation_specs(packages=sorted(locked_packages()), count=count, seed=seed, split=purpose)
        if specs:
            services.build_packages_suite(name=name, purpose=purpose, specs=specs, seed=seed)
