"""Go and Rust: work that is told what hidden tests expect by their files, helpers, tables or names fails; noisy work passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.backends.base import Backend
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import FrameworkVerifier, TaskSpec
from tests.sandbox.grading import compiled, greetings
from tests.sandbox.grading.verifiers.test_suites_attacked import patched, rust_store
from tests.sandbox.grading.verifiers.test_toolchains import in_sandbox

pytestmark = [pytest.mark.integration, pytest.mark.toolchains]
slow = pytest.mark.slow


def store_for(task: TaskSpec, folder: Path) -> EnvironmentStore:
    assert isinstance(task.verifier, FrameworkVerifier)
    if task.verifier.framework == "cargo":
        return rust_store(folder)
    if not in_sandbox("go"):
        pytest.skip("no go below /usr: apt install golang-go")
    return EnvironmentStore(folder)


@pytest.mark.parametrize(
    ("task", "work", "outcome"),
    [
        pytest.param(compiled.GO_TABLE, compiled.GO_LEARNS, Cause.ADAPTIVE, id="a table of the product's objects"),
        pytest.param(greetings.GO, compiled.GO_EMBEDS_AND_IS_RIGHT, Cause.ADAPTIVE, id="embeds all"),
        pytest.param(compiled.RUST_HELPED, compiled.RUST_INCLUDES_AND_IS_RIGHT, Cause.ADAPTIVE, id="includes"),
        pytest.param(compiled.GO_GOLDEN, compiled.GO_READS_GOLDEN, Cause.ADAPTIVE, id="golden file (Go)", marks=slow),
        pytest.param(compiled.RUST_GOLDEN, compiled.RUST_READS_GOLDEN, Cause.ADAPTIVE, id="golden file", marks=slow),
        pytest.param(compiled.GO_HELPED, greetings.GO_ADAPTIVE, Cause.ADAPTIVE, id="helper (Go)", marks=slow),
        pytest.param(compiled.RUST_HELPED, greetings.RUST_ADAPTIVE, Cause.ADAPTIVE, id="helper", marks=slow),
        pytest.param(compiled.GO_TWO, compiled.GO_READS_NEXT, Cause.TESTS_FAILED, id="next package", marks=slow),
        pytest.param(compiled.RUST_NAMED, compiled.RUST_ASKS_ITS_NAME, Cause.TESTS_FAILED, id="names", marks=slow),
    ],
)
async def test_work_that_is_told_by_what_stands_around_the_tests_fails(
    backend: Backend, tmp_path: Path, task: TaskSpec, work: str, outcome: Cause
):
    store = store_for(task, tmp_path)
    good = await grade(backend=backend, environments=store, task=task, patch=from_files(task, task.gold))
    assert good.verdict is Verdict.PASSED, good
    report = await grade(backend=backend, environments=store, task=task, patch=patched(task, work))
    assert report.outcome is outcome, report


@pytest.mark.parametrize(
    ("task", "work"),
    [
        pytest.param(greetings.GO, compiled.GO_PRINTS, id="go"),
        pytest.param(greetings.RUST, compiled.RUST_WRITES, id="both outputs"),
        pytest.param(greetings.RUST, compiled.RUST_PRINTS, id="print", marks=slow),
    ],
)
async def test_right_work_may_write_beside_the_report(backend: Backend, tmp_path: Path, task: TaskSpec, work: str):
    report = await grade(backend=backend, environments=store_for(task, tmp_path), task=task, patch=patched(task, work))
    assert report.verdict is Verdict.PASSED, report
