"""Running the controls of task versions in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from composer_web.env import env
from composer_web.tasks.models import TaskVersion
from composer_web.tasks.services import record_controls
from sandbox.backends import default_backend
from sandbox.grading.controls import Controls
from sandbox.grading.controls import run_controls as grade_controls
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec

RUNS = 3
"""Times that the oracle must pass and the empty patch must fail."""

AT_ONCE = 4


def run_pending(version_ids: Sequence[int]) -> list[str]:
    """Grade and record the controls of those versions that have none; returns the causes of those not graded."""
    versions = list(TaskVersion.objects.filter(pk__in=version_ids, controls_ok=None).select_related("task"))
    if not versions:
        return []
    failed = []
    outcomes = asyncio.run(_grade([version.bundle for version in versions]))
    for version, controls in zip(versions, outcomes, strict=True):
        if any(str(verdict) == "infra_error" for verdict in (*controls.oracle, *controls.noop)):
            failed.append(f"{version}: {controls.reason}")
        else:
            record_controls(version=version, controls=controls.model_dump(mode="json"), ok=controls.ok)
    return failed


async def _grade(tasks: Sequence[TaskSpec]) -> list[Controls]:
    backend, environments = default_backend(), EnvironmentStore(env().data / "environments")
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(task: TaskSpec) -> Controls:
        async with slots:
            return await grade_controls(backend=backend, environments=environments, task=task, k=RUNS)

    try:
        return list(await asyncio.gather(*(one(task) for task in tasks)))
    finally:
        await backend.close()
