"""Celery tasks of tasks: thin, idempotent."""

from __future__ import annotations

import asyncio
from typing import Any

from celery import shared_task

from composer_web.env import env
from composer_web.tasks import services
from composer_web.tasks.models import TaskVersion

RUNS = 3
"""Times that the oracle must pass and the empty patch must fail."""


class ControlsNotGraded(Exception):
    """The sandbox failed under the controls; they are tried again."""


@shared_task(name="tasks.run_controls", bind=True, max_retries=3, default_retry_delay=5)
def run_controls(self: Any, *, version_id: int, **_: Any) -> None:
    """Oracle and no-op controls of one version; done once."""
    version = TaskVersion.objects.select_related("task").get(pk=version_id)
    if version.controls_ok is not None:
        return
    controls = asyncio.run(_controls(version))
    if any(str(verdict) == "infra_error" for verdict in (*controls.oracle, *controls.noop)):
        raise self.retry(exc=ControlsNotGraded(f"{version}: {controls.reason}"))
    services.record_controls(version=version, controls=controls.model_dump(mode="json"), ok=controls.ok)


async def _controls(version: TaskVersion) -> Any:
    from sandbox.backends import default_backend
    from sandbox.grading.controls import run_controls as grade_controls
    from sandbox.tasks.environments import EnvironmentStore

    backend = default_backend()
    try:
        return await grade_controls(
            backend=backend, environments=EnvironmentStore(env().data / "environments"), task=version.bundle, k=RUNS
        )
    finally:
        await backend.close()


@shared_task(name="tasks.validate_suite")
def validate_suite(*, suite_id: int, **_: Any) -> None:
    from composer_web.tasks.models import Suite

    services.request_suite_controls(suite=Suite.objects.get(pk=suite_id))
