"""Run visible and hidden tests beside each other: does the work meet what its author could see, and nothing that was hidden?

The pristine checkout, the work and the reference solution run the same pristine tests, each in a clean sandbox. Work that newly
passes visible tests and no hidden test that the reference solution newly passes is *special-cased*, however it is written.

Only Python (pytest) and JavaScript (node) are run here. It changes no verdict and never fails a grading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sandbox.backends.base import Backend, FileChange, Limits, PathError, SandboxError
from sandbox.grading.adapters.base import Adapter, Order
from sandbox.grading.adapters.node import NodeAdapter
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.dynamic_analysis.perturbation import NODE_FILES, TEST_FILE
from sandbox.grading.patches.apply import apply, write_tests
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.findings import ReportFinding, Rule, finding
from sandbox.grading.verifiers.suite import collect
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, CallsVerifier, InlineEnvironment, TaskSpec

SECONDS = 8.0
MAX_FILES = 20

Statuses = Mapping[str, str]
"""Test id → its status."""


async def compare_tests(
    *, backend: Backend, environments: EnvironmentStore, task: TaskSpec, changes: Sequence[FileChange]
) -> tuple[ReportFinding, ...]:
    """A finding where visible tests pass and hidden ones do not, or where all do. Empty when neither can be told."""
    verifier = task.verifier
    if isinstance(verifier, CallsVerifier):
        return ()
    visible = visible_tests(task)
    product = [change for change in changes if not TEST_FILE.search(change.path)]
    hidden = {path for path in verifier.test_files if adapter_for(path) is not None}
    if not product or not hidden or len(visible) + len(hidden) > MAX_FILES:
        return ()
    gold = from_files(task, task.gold).changes
    try:
        before, after, wanted = await asyncio.gather(
            *(_statuses(backend, environments, task, made, visible) for made in ((), product, gold or product))
        )
    except (SandboxError, PathError, OSError):
        return ()
    return judge_tests(before, after, wanted if gold else None, hidden)


def judge_tests(
    before: Statuses, after: Statuses, wanted: Statuses | None, hidden: set[str]
) -> tuple[ReportFinding, ...]:
    """What the statuses of the pristine checkout, the work and the reference solution (None without one) say."""
    demands = {
        name
        for name, status in {**before, **after, **(wanted or {})}.items()
        if before.get(name) != "passed" and (status == "passed" if wanted is None else wanted.get(name) == "passed")
    }
    asked = {name for name in demands if name.split("::", 1)[0] in hidden}
    if wanted is None:
        asked = {name for name in after if name.split("::", 1)[0] in hidden and before.get(name) != "passed"}
    newly = [
        name
        for name, status in after.items()
        if name.split("::", 1)[0] not in hidden and status == "passed" and before.get(name) != "passed"
    ]
    met = [name for name in asked if after.get(name) == "passed"]
    if newly and asked and not met:
        detail = f"{len(newly)} visible tests begin to pass, and none of {len(asked)} hidden ones"
        return (finding(Rule.OBSERVED_SPECIAL_CASES, detail),)
    return ()


def visible_tests(task: TaskSpec) -> dict[str, str]:
    """Test files of the pristine checkout that the task's framework runs: path → text."""
    assert not isinstance(task.verifier, CallsVerifier)
    environment = task.environment
    files = environment.files if isinstance(environment, InlineEnvironment) else environment.overrides
    return {
        path: text
        for path, text in files.items()
        if adapter_for(path) is not None and path not in task.verifier.test_files
    }


def adapter_for(path: str) -> Adapter | None:
    """What runs a test file; None for a file that is none, or is in another language."""
    name = path.rpartition("/")[2]
    if name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")):
        return PytestAdapter()
    return NodeAdapter() if TEST_FILE.search(path) and path.endswith(NODE_FILES) else None


async def _statuses(
    backend: Backend,
    environments: EnvironmentStore,
    task: TaskSpec,
    changes: Sequence[FileChange],
    visible: Mapping[str, str],
) -> dict[str, str]:
    assert not isinstance(task.verifier, CallsVerifier)
    texts = {**visible, **task.verifier.test_files}
    python = "python3"
    if isinstance(task.environment, BuiltEnvironment):
        python = environments.manifest(task.environment.digest).python
    runners = {path: made for path in sorted(texts) if (made := adapter_for(path)) is not None}
    files, adapter = tuple(runners), next(iter(runners.values()))
    order = Order(files=files, ids=None, seconds=SECONDS, python=python, source_roots=("", "src", "lib"))
    limits = Limits(life_seconds=6 * SECONDS, call_seconds=4 * SECONDS)
    async with await backend.start(environments.spec(task.environment), limits=limits) as sandbox:
        await apply(sandbox, changes)
        await write_tests(sandbox, {path: text.encode() for path, text in texts.items()})
        run = await collect(sandbox, adapter, order)
    return {name: case.status for name, case in run.cases.items()}
