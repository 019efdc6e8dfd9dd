"""Celery tasks of environments: short and idempotent."""

from __future__ import annotations

import logging
from typing import Any

from composer_web.core.queue.outbox import enqueue
from composer_web.core.queue.work import task

log = logging.getLogger(__name__)


@task("repositories.build", queue="build", lease="environment:{environment_id}", inside=True)
def build(*, environment_id: int, **_: Any) -> None:
    """Build one requested environment; a second delivery does nothing."""
    from composer_web.repositories.building import build_environment

    log.info("environment %d: %s", environment_id, build_environment(environment_id))


@task("repositories.build_packages", queue="build", seconds=300)
def build_packages(**_: Any) -> None:
    """Ask for the environments of all locked packages, and then for the suites made from them."""
    from composer_web.repositories.building import locked_packages, request_package

    for name in sorted(locked_packages()):
        request_package(name=name)
    enqueue("tasks.build_package_suites", {}, queue="build", key="package-suites")
