"""Flaky tests, whose results differ on the same work: found by repeats and removed from the task."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.backends.base import Backend
from sandbox.grading.adapters import adapter_of
from sandbox.grading.adapters.base import TestRun
from sandbox.grading.grader import grading_limits
from sandbox.grading.patches.apply import apply, write_tests
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verifiers.suite import collect, order_of
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import SuiteVerifier, TaskSpec


async def oracle_runs(
    *, backend: Backend, environments: EnvironmentStore, task: TaskSpec, verifier: SuiteVerifier, k: int
) -> list[TestRun]:
    """The hidden tests as they are, with the oracle's work, `k` times in fresh sandboxes. Raises SandboxError, TaskError."""
    expected = (*verifier.fail_to_pass, *verifier.pass_to_pass)
    runs = []
    for _ in range(k):
        spec = environments.spec(task.environment)
        async with await backend.start(spec, limits=grading_limits(task)) as sandbox:
            await apply(sandbox, from_files(task, task.gold).changes)
            await write_tests(sandbox, {path: text.encode() for path, text in verifier.test_files.items()})
            runs.append(await collect(sandbox, adapter_of(verifier), order_of(task, verifier, environments, expected)))
    return runs


def unsteady(expected: Sequence[str], runs: Sequence[TestRun]) -> tuple[str, ...]:
    """Expected tests that passed in some of the runs and not in others."""
    passed = [{test_id for test_id in expected if run.finished and run.status(test_id) == "passed"} for run in runs]
    if not passed:
        return ()
    always, ever = set.intersection(*passed), set.union(*passed)
    return tuple(test_id for test_id in expected if test_id in ever - always)


def without_tests(task: TaskSpec, ids: Sequence[str]) -> TaskSpec | None:
    """The task as a new bundle that does not expect these tests; None when nothing would be left to decide by."""
    verifier = task.verifier
    if not isinstance(verifier, SuiteVerifier):
        return None
    dropped = set(ids)
    fail_to_pass = tuple(i for i in verifier.fail_to_pass if i not in dropped)
    pass_to_pass = tuple(i for i in verifier.pass_to_pass if i not in dropped)
    if not fail_to_pass:
        return None
    changed = verifier.model_copy(update={"fail_to_pass": fail_to_pass, "pass_to_pass": pass_to_pass})
    return task.model_copy(update={"verifier": changed})
