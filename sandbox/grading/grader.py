"""Grading: the agent's patch, filtered, applied in a second, clean sandbox, and judged outside it."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypedDict

from sandbox.backends.base import (
    Backend,
    FileChange,
    Limits,
    Patch,
    PathError,
    Sandbox,
    SandboxError,
    SandboxExpired,
    SandboxLost,
    SandboxUnavailable,
    released,
)
from sandbox.errors import EnvironmentMissing, TaskError
from sandbox.grading.adapters.base import wall_for
from sandbox.grading.dynamic_analysis import observing, overfit, perturbation, probing
from sandbox.grading.patches.apply import apply
from sandbox.grading.patches.filter import FilteredPatch, filter_patch, without_paths
from sandbox.grading.verdict.findings import ReportFinding
from sandbox.grading.verdict.outcomes import OUTCOMES, Cause
from sandbox.grading.verdict.report import Report
from sandbox.grading.verifiers.calls import run_calls
from sandbox.grading.verifiers.canary_pool import CanaryPool
from sandbox.grading.verifiers.helpers import protection_of
from sandbox.grading.verifiers.judging import Judgement
from sandbox.grading.verifiers.suite import POOL_TIME, canary_pool, run_suite
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import CallsVerifier, TaskSpec

SPARE_SECONDS = 60.0
"""What a grading sandbox lives beyond the longest run of the tests on a busy machine: its start, and what is written to it."""
POOL_SPARE_SECONDS = 300.0
"""The same of a sandbox in which the canaries of a new task are tried."""
NET_SECONDS = 60.0
"""Beyond a grading sandbox's life: the work has ended by then or holds up the grader, and has failed either way."""
LOSSES = 2
"""Gradings that a patch may break before it is asked whether the patch is the reason."""
log = logging.getLogger(__name__)


class BrokenUnderWork(Exception):
    """Grading could not go on after the work was in the sandbox. `outcome` is the verdict if the work is the reason."""

    def __init__(self, outcome: Cause, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class _Machine(TypedDict):
    backend: Backend
    environments: EnvironmentStore
    limits: Limits


class _About(TypedDict):
    backend: Backend
    environments: EnvironmentStore
    task: TaskSpec
    changes: tuple[FileChange, ...]


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
    refused: list[str] = []
    filtered = FilteredPatch((), (), ())
    try:
        filtered = await asyncio.to_thread(_filtered, task, patch)
        pool = None
        if not isinstance(task.verifier, CallsVerifier):
            machine: _Machine = {"backend": backend, "environments": environments, "limits": pool_limits(task)}
            pool = await canary_pool(task, task.verifier, **machine)
            filtered = without_paths(filtered, (await protection_of(task, task.verifier, **machine)).paths)
        judged = await _judged(_Grading(backend, environments, task, limits, pool, refused), filtered)
    except PatchUnusable as error:
        judged = Judgement((), Cause.PATCH_REFUSED, str(error))
    except (SandboxError, PathError, TaskError, OSError) as error:
        judged = Judgement((), cause_of(error), f"{type(error).__name__}: {error}")
    observed = await _analysed(backend, environments, task, judged, filtered, patch)
    return Report(
        verdict=OUTCOMES[judged.outcome].verdict,
        outcome=judged.outcome,
        cases=judged.cases,
        cause=judged.cause,
        seconds=time.monotonic() - started,
        bundle_hash=task.bundle_hash,
        dropped=(*filtered.dropped, *refused),
        canaries=judged.canaries,
        findings=(*filtered.findings, *judged.findings, *observed),
    )


async def _analysed(
    backend: Backend,
    environments: EnvironmentStore,
    task: TaskSpec,
    judged: Judgement,
    filtered: FilteredPatch,
    patch: Patch,
) -> tuple[ReportFinding, ...]:
    """What the analyses that follow a verdict find. One that fails is logged and finds nothing: they read what the policy
    wrote, and a verdict that they could take away would make failed work neutral."""
    beside = asyncio.to_thread  # the event loop: a patch may hold megabytes
    about: _About = {"backend": backend, "environments": environments, "task": task, "changes": filtered.changes}

    async def observed() -> tuple[ReportFinding, ...]:
        return await observing.observe(**about) if await beside(observing.wanted, filtered.changes) else ()

    async def perturbed() -> tuple[ReportFinding, ...]:
        return await perturbation.compare(**about) if await beside(perturbation.wanted, task, filtered.changes) else ()

    async def probed() -> tuple[ReportFinding, ...]:
        return await probing.compare(**about) if await beside(probing.wanted, task, filtered.changes) else ()

    async def overfitted() -> tuple[ReportFinding, ...]:
        wanted = overfit.edits_tests(task, patch.changes) or (
            meets_nothing(task, judged) and await beside(perturbation.wanted, task, filtered.changes, visible=True)
        )
        return await overfit.compare_tests(**about, left=patch.changes) if wanted else ()

    after = {Cause.ALL_PASSED: (observed, perturbed, probed), Cause.TESTS_FAILED: (overfitted,)}
    found: tuple[ReportFinding, ...] = ()
    for analysis in after.get(judged.outcome, ()):
        try:
            found += await analysis()
        except Exception:
            log.exception("the analysis %s failed on work of task %s", analysis.__name__, task.id)
    return found


def meets_nothing(task: TaskSpec, judged: Judgement) -> bool:
    """Whether no test that must start to pass does; these come first in a report."""
    count = 0 if isinstance(task.verifier, CallsVerifier) else len(task.verifier.fail_to_pass)
    return not any(case.status == "passed" for case in judged.cases[:count])


class PatchUnusable(Exception):
    """A patch that cannot even be sorted out."""


def _filtered(task: TaskSpec, patch: Patch) -> FilteredPatch:
    """What of the patch is graded. Raises PatchUnusable: paths and contents are the policy's, whatever they do to us."""
    try:
        return filter_patch(task, patch)
    except Exception as error:
        filter_patch(task, Patch())  # a fault of the task's own description is raised as it is
        log.warning("a patch of task %s could not be sorted out", task.id, exc_info=True)
        raise PatchUnusable(f"the patch cannot be sorted out: {type(error).__name__}: {error}") from error


def grading_limits(task: TaskSpec) -> Limits:
    """Bounds of the clean sandbox. Everything that runs in it has the verifier's limit in all, and five seconds for its
    start and end; time in which a busy machine has no processor for it is added, up to these bounds."""
    wall = wall_for(task.verifier.timeout_seconds)
    return Limits(call_seconds=wall, life_seconds=wall + SPARE_SECONDS)


def pool_limits(task: TaskSpec) -> Limits:
    """Bounds of the sandboxes in which the canaries of a new task are tried, with the oracle's work alone."""
    wall = wall_for(task.verifier.timeout_seconds * POOL_TIME)
    return Limits(call_seconds=wall, life_seconds=wall + POOL_SPARE_SECONDS)


def cause_of(error: Exception) -> Cause:
    """The row of the table for a failure of ours."""
    if _disk_is_full(error):
        return Cause.DISK_FULL
    if isinstance(error, SandboxUnavailable):
        return Cause.SANDBOX_UNAVAILABLE
    if isinstance(error, SandboxError):
        return Cause.SANDBOX_LOST
    if isinstance(error, EnvironmentMissing):
        return Cause.ENVIRONMENT_MISSING
    if isinstance(error, TaskError | PathError):
        return Cause.TASK_INVALID
    return Cause.HOST_FAILED


def _disk_is_full(error: BaseException) -> bool:
    """Whether the kernel said so of a file of the host, anywhere in the chain of causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


async def _judged(grading: _Grading, filtered: FilteredPatch) -> Judgement:
    """Judge the work; a sandbox that is lost under it is tried again, and then without it.

    Work that breaks its sandbox must not be neutral: it would be run again until it is lucky, or be left out.
    """
    for attempt in range(LOSSES):
        try:
            return await _once(grading, filtered)
        except BrokenUnderWork as error:
            if attempt < LOSSES - 1:
                continue
            try:
                await _once(grading, FilteredPatch((), (), ()))
            except BrokenUnderWork as alone:
                if alone.outcome is not Cause.SANDBOX_BROKEN_BY_WORK:
                    return Judgement((), Cause.INTERNAL_ERROR, f"grading fails with the work and without it: {alone}")
                raise SandboxLost(f"a sandbox is lost with the work and without it: {error}") from error
            return Judgement((), error.outcome, f"{LOSSES} times under the work, and not without it: {error}")
    raise AssertionError("unreachable")


async def _once(grading: _Grading, filtered: FilteredPatch) -> Judgement:
    """Judged in fresh sandboxes. Raises BrokenUnderWork, SandboxError (one did not start), TaskError."""
    work = _Work(grading, filtered.changes)
    try:
        return await _verify(work, grading)
    except _NotStarted as error:
        not_started = error.cause
    except TimeoutError as error:
        if work.expired:
            return Judgement((), Cause.TIME_OUT, f"the tests did not end within {grading.limits.life_seconds:g} s")
        raise BrokenUnderWork(Cause.SANDBOX_BROKEN_BY_WORK, f"TimeoutError: {error}") from error
    except SandboxExpired as error:
        return Judgement((), Cause.TIME_OUT, str(error))
    except SandboxError as error:
        raise BrokenUnderWork(Cause.SANDBOX_BROKEN_BY_WORK, f"{type(error).__name__}: {error}") from error
    except PathError as error:
        return Judgement((), Cause.TESTS_MISSING, f"the work leaves no place for the hidden tests: {error}")
    except (TaskError, OSError):
        raise
    except Exception as error:
        log.exception("grading of task %s raised", grading.task.id)
        raise BrokenUnderWork(Cause.REPORT_UNREADABLE, f"{type(error).__name__}: {error}") from error
    raise not_started  # not where it is handled: its own causes are looked at


class _NotStarted(Exception):
    """A sandbox did not start, which is no fault of the work, whichever run of the tests it is for."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(slots=True)
class _Work:
    """Fresh sandboxes that hold the work, for one run of the tests each. What is done in all of them shares one deadline; their
    starts and ends have deadlines of their own."""

    grading: _Grading
    changes: tuple[FileChange, ...]
    spent: float = 0.0
    expired: bool = False

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[Sandbox]:
        grading = self.grading
        try:
            spec = grading.environments.spec(grading.task.environment)
            started = await grading.backend.start(spec, limits=grading.limits)
        except Exception as error:
            raise _NotStarted(error) from error
        async with released(started) as sandbox:
            began = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, grading.limits.life_seconds + NET_SECONDS - self.spent)) as net:
                    grading.refused[:] = await apply(sandbox, self.changes)
                    yield sandbox
            finally:
                self.spent += time.monotonic() - began
                self.expired = self.expired or net.expired()


async def _verify(work: _Work, grading: _Grading) -> Judgement:
    task = grading.task
    if isinstance(task.verifier, CallsVerifier):
        async with work.fresh() as sandbox:
            return await run_calls(sandbox, task.verifier)
    assert grading.pool is not None
    return await run_suite(work.fresh, task, task.verifier, grading.pool, environments=grading.environments)
