"""Grading: the agent's patch, carried into a second, clean sandbox, and judged outside it."""

from __future__ import annotations

import time

from sandbox.backends.base import Backend, FileChange, Limits, Patch, PathError, Sandbox, SandboxError
from sandbox.grading.calls import run_calls
from sandbox.grading.filter import split
from sandbox.grading.pytest_run import run_pytest
from sandbox.grading.report import CaseResult, Report, Verdict
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import TaskError
from sandbox.tasks.spec import BuiltEnvironment, CallsVerifier, TaskSpec

GRADING_LIMITS = Limits(call_seconds=600.0, life_seconds=900.0)
NOT_PASSED_WORD = {"missing": "did not run", "timeout": "ran out of time", "skipped": "were skipped"}


async def grade(
    *, backend: Backend, environments: EnvironmentStore, task: TaskSpec, patch: Patch, limits: Limits = GRADING_LIMITS
) -> Report:
    """Judge `patch` by the hidden tests of `task`, in a fresh sandbox that holds nothing else of the agent's.

    Whatever the patch does is a verdict of `passed` or `failed`. A sandbox or environment that could not be used
    gives `infra_error`, which says nothing about the patch.
    """
    started = time.monotonic()
    kept, dropped = split(task, patch)
    refused: list[str] = []
    try:
        spec = environments.spec(task.environment)
        async with await backend.start(spec, limits=limits) as sandbox:
            refused = await apply(sandbox, kept)
            cases = await _verify(sandbox, task, environments)
    except (SandboxError, PathError, TaskError, OSError) as error:
        return Report(
            verdict=Verdict.INFRA_ERROR,
            cause=f"{type(error).__name__}: {error}",
            seconds=time.monotonic() - started,
            bundle_hash=task.bundle_hash,
            dropped=dropped,
        )
    return Report(
        verdict=Verdict.PASSED if cases and all(case.status == "passed" for case in cases) else Verdict.FAILED,
        cases=cases,
        cause=summarise(cases),
        seconds=time.monotonic() - started,
        bundle_hash=task.bundle_hash,
        dropped=(*dropped, *refused),
    )


async def apply(sandbox: Sandbox, changes: tuple[FileChange, ...]) -> list[str]:
    """Make `changes` in the checkout, deletions first; returns `path: reason` for those that cannot be made."""
    refused = []
    for change in sorted(changes, key=lambda c: (c.content is not None, c.path)):
        try:
            if change.content is None:
                await sandbox.delete(change.path)
            else:
                await sandbox.write(change.path, change.content, executable=change.executable)
        except PathError as error:
            refused.append(f"{change.path}: cannot be applied: {error}")
    return refused


async def _verify(sandbox: Sandbox, task: TaskSpec, environments: EnvironmentStore) -> tuple[CaseResult, ...]:
    verifier = task.verifier
    if isinstance(verifier, CallsVerifier):
        return await run_calls(sandbox, verifier)
    python = "python3"
    if isinstance(task.environment, BuiltEnvironment):
        python = environments.manifest(task.environment.digest).python
    for path, text in verifier.test_files.items():
        await sandbox.write(path, text.encode())
    return await run_pytest(sandbox, verifier, python=python)


def summarise(cases: tuple[CaseResult, ...]) -> str:
    """Why it is not passed, in one line; empty when it is."""
    if not cases:
        return "no test ran"
    bad = [case for case in cases if case.status != "passed"]
    if not bad:
        return ""
    words = [f"{len(bad)} of {len(cases)} cases failed"]
    for status, word in NOT_PASSED_WORD.items():
        count = sum(case.status == status for case in bad)
        if count:
            words.append(f"{count} {word}")
    return ", ".join(words)
