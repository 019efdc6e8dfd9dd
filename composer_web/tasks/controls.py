"""Runs the controls of task versions in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from composer_web.core.queue import leases
from composer_web.env import env
from composer_web.tasks.models import TaskVersion
from composer_web.tasks.services import quarantine_tests, record_controls
from sandbox.backends.choice import default_backend
from sandbox.grading.controls import Controls
from sandbox.grading.controls import run_controls as grade_controls
from sandbox.tasks.environments import EnvironmentStore

RUNS = 3
"""Times that the oracle must pass and the empty patch must fail."""
AT_ONCE = 4
Held = Mapping[int, leases.Held]
"""Leases by version."""
Told = Callable[[TaskVersion, Controls], None]


def resource(version_id: int) -> str:
    """Name of the lease under which the controls of a version run."""
    return f"controls:{version_id}"


def run_pending(version_ids: Sequence[int], *, held: Held = MappingProxyType({})) -> list[str]:
    """What versions without controls of the present grading need to train; returns the causes of those that could not be
    graded."""
    pending = list(TaskVersion.objects.filter(TaskVersion.unproved(), pk__in=version_ids))
    return run_versions(pending, full=False, held=held)


def run_again(version_ids: Sequence[int], *, held: Held = MappingProxyType({})) -> list[str]:
    """Every control of these versions, whatever was found before; returns the causes of those that could not be graded."""
    return run_versions(list(TaskVersion.objects.filter(pk__in=version_ids)), full=True, held=held)


def run_versions(
    versions: Sequence[TaskVersion],
    *,
    full: bool,
    told: Told = lambda version, controls: None,
    held: Held = MappingProxyType({}),
) -> list[str]:
    """Grade and record the controls of these versions, several at once; each is given to `told` when it is recorded.
    `held` are their leases: a version whose lease was lost is left to the worker that has it now."""

    def ours(version: TaskVersion) -> bool:
        return version.pk not in held or not held[version.pk].lost.is_set()

    failed = []
    for start in range(0, len(versions), AT_ONCE):
        part = [version for version in versions[start : start + AT_ONCE] if ours(version)]
        for version, controls in zip(part, asyncio.run(_grade(part, full)), strict=True):
            if not ours(version):
                continue
            if controls.graded:
                record_controls(version=version, controls=controls.model_dump(mode="json"), ok=controls.ok)
                if dropped := (*controls.flaky, *controls.freed):
                    quarantine_tests(version=version, ids=dropped)
            else:
                failed.append(f"{version}: {controls.reason}")
            told(version, controls)
    return failed


async def _grade(versions: Sequence[TaskVersion], full: bool) -> list[Controls]:
    backend, environments = default_backend(), EnvironmentStore(env().data / "environments")
    tasks = [version.bundle for version in versions]
    try:
        return list(
            await asyncio.gather(
                *(grade_controls(backend=backend, environments=environments, task=t, k=RUNS, full=full) for t in tasks)
            )
        )
    finally:
        await backend.close()
