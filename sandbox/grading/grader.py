"""Grading: the agent's patch, carried into a second, clean sandbox, and judged outside it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sandbox.backends.base import (
    Backend,
    Limits,
    Patch,
    PathError,
    Sandbox,
    SandboxError,
    SandboxExpired,
    SandboxLost,
    SandboxUnavailable,
)
from sandbox.grading.adapters.base import wall_for
from sandbox.grading.apply import apply
from sandbox.grading.calls import run_calls
from sandbox.grading.canaries.pool import CanaryPool
from sandbox.grading.filter import Carried, carry
from sandbox.grading.judging import Judgement
from sandbox.grading.outcomes import OUTCOMES, Cause
from sandbox.grading.report import Report
from sandbox.grading.suite import POOL_TIME, canary_pool, run_suite
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import EnvironmentMissing, TaskError
from sandbox.tasks.spec import CallsVerifier, TaskSpec

SPARE_SECONDS = 300.0
"""What a grading sandbox lives beyond the longest run of the tests."""
LOSSES = 2
"""Sandboxes that a patch may lose before it is asked whether the patch is the reason."""


class LostUnderWork(Exception):
    """The sandbox died after the work was in it."""


@dataclass(frozen=True, slots=True)
class _Grading:
    backend: Backend
    environments: EnvironmentStore
    task: TaskSpec
    limits: Limits
    pool: CanaryPool | None = None
    refused: list[str] = field(default_factory=list)


async def grade(
    *, backend: Backend, environments: EnvironmentStore, task: TaskSpec, patch: Patch, limits: Limits | None = None
) -> Report:
    """Judge `patch` by the hidden tests of `task`, in a fresh sandbox that holds nothing else of the agent's.

    Whatever the patch does is a verdict of `passed` or `failed`. A sandbox or environment that could not be used
    gives `infra_error`, which says nothing about the patch. `outcomes.py` has the table.
    """
    started = time.monotonic()
    limits = limits or grading_limits(task)
    carried = carry(task, patch)
    refused: list[str] = []
    try:
        pool = None
        if not isinstance(task.verifier, CallsVerifier):
            pool = await canary_pool(task, task.verifier, backend=backend, environments=environments, limits=limits)
        judged = await _judged(_Grading(backend, environments, task, limits, pool, refused), carried)
    except (SandboxError, PathError, TaskError, OSError) as error:
        judged = Judgement((), cause_of(error), f"{type(error).__name__}: {error}")
    return Report(
        verdict=OUTCOMES[judged.outcome].verdict,
        outcome=judged.outcome,
        cases=judged.cases,
        cause=judged.cause,
        seconds=time.monotonic() - started,
        bundle_hash=task.bundle_hash,
        dropped=(*carried.dropped, *refused),
        canaries=judged.canaries,
        findings=(*carried.findings, *judged.findings),
    )


def grading_limits(task: TaskSpec) -> Limits:
    """Bounds of the clean sandbox: time for the hidden tests, and for trying the canaries of a new task."""
    wall = wall_for(task.verifier.timeout_seconds * POOL_TIME)
    return Limits(call_seconds=wall, life_seconds=wall + SPARE_SECONDS)


def cause_of(error: Exception) -> Cause:
    """The row of the table for a failure of ours."""
    if isinstance(error, SandboxUnavailable):
        return Cause.SANDBOX_UNAVAILABLE
    if isinstance(error, SandboxError):
        return Cause.SANDBOX_LOST
    if isinstance(error, EnvironmentMissing):
        return Cause.ENVIRONMENT_MISSING
    if isinstance(error, TaskError | PathError):
        return Cause.TASK_INVALID
    return Cause.HOST_FAILED


async def _judged(grading: _Grading, carried: Carried) -> Judgement:
    """Judge the work; a sandbox that is lost under it is tried again, and then without it.

    Work that breaks its sandbox must not be neutral: it would be run again until it is lucky, or be left out.
    """
    for attempt in range(LOSSES):
        try:
            return await _once(grading, carried)
        except LostUnderWork as error:
            if attempt < LOSSES - 1:
                continue
            try:
                await _once(grading, Carried((), (), ()))
            except LostUnderWork:
                raise SandboxLost(f"a sandbox is lost with the work and without it: {error}") from error
            return Judgement(
                (), Cause.SANDBOX_BROKEN_BY_WORK, f"the sandbox died {LOSSES} times under the work: {error}"
            )
    raise AssertionError("unreachable")


async def _once(grading: _Grading, carried: Carried) -> Judgement:
    """One fresh sandbox. Raises LostUnderWork, SandboxError (it did not start), TaskError."""
    spec = grading.environments.spec(grading.task.environment)
    async with await grading.backend.start(spec, limits=grading.limits) as sandbox:
        try:
            grading.refused[:] = await apply(sandbox, carried.changes)
            return await _verify(sandbox, grading)
        except SandboxExpired as error:
            return Judgement((), Cause.TIME_OUT, str(error))
        except SandboxError as error:
            raise LostUnderWork(f"{type(error).__name__}: {error}") from error
        except PathError as error:
            return Judgement((), Cause.TESTS_MISSING, f"the work leaves no place for the hidden tests: {error}")


async def _verify(sandbox: Sandbox, grading: _Grading) -> Judgement:
    task = grading.task
    if isinstance(task.verifier, CallsVerifier):
        return await run_calls(sandbox, task.verifier)
    assert grading.pool is not None
    return await run_suite(sandbox, task, task.verifier, grading.pool, environments=grading.environments)
