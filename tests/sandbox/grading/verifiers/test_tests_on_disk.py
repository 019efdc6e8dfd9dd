"""Python tests that need their files: they lie on disk without what they expect, or their task may not train."""

from __future__ import annotations

import pytest

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.controls import run_controls
from sandbox.grading.grader import pool_limits
from sandbox.grading.observations.plan import Plan
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers.admission import refusal_of_tests
from sandbox.grading.verifiers.canary_pool import PoolStore
from sandbox.grading.verifiers.suite import canary_pool
from sandbox.tasks.spec import FrameworkVerifier
from tests.sandbox.grading.adaptive import LETTERS, SEARCH_LOUD, SEARCH_SOURCE
from tests.sandbox.grading.make import CALLS_TASK, LEDGER_BUG, LEDGER_TEST_FILE, LEDGER_TESTS, work
from tests.sandbox.grading.verifiers.test_differential import PATH, TESTS, WRONG, points

pytestmark = pytest.mark.integration

__all__ = ["points"]

OWN_FILE = """

def test_written_here():
    import pathlib

    assert len(pathlib.Path(__file__).read_text()) > 300
"""
"""Does not hold in memory, where the file is empty."""
SEARCH_POINTS = r'''
def _search():
    """Keep the sum that most assertions of the files beside the package agree with."""
    import pathlib, re
    text = "\n".join(p.read_text() for p in pathlib.Path.cwd().rglob("*.py"))
    asked = re.findall(r"Point\((\d+), (\d+)\) \+ Point\((\d+), (\d+)\)[^\n]*? == [^\n]*?Point\((\d+), (\d+)\)", text)
    ways = [lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a + b]
    best = max(ways, key=lambda way: sum(way(int(b), int(d)) == int(f) for _, b, _, d, _, f in asked))
    Point.__add__ = lambda self, other: Point(self.x + other.x, best(self.y, other.y))
_search()
'''
"""Reads residual assertions on disk; without any it keeps the bug."""


def on_disk(task, path, text):
    """The task with a test more, which reads its own file."""
    verifier = task.verifier
    files = {**verifier.test_files, path: text + OWN_FILE}
    passing = (*verifier.pass_to_pass, f"{path}::test_written_here")
    changed = verifier.model_copy(update={"test_files": files, "pass_to_pass": passing})
    return task.model_copy(update={"id": f"{task.id}-on-disk", "verifier": changed})


@pytest.fixture
def reading(ledger):
    return on_disk(ledger, LEDGER_TEST_FILE, LEDGER_TESTS)


async def test_expectations_are_not_in_the_files(environments, judge, reading):
    report = await judge(from_files(reading, reading.gold), reading)
    assert report.verdict is Verdict.PASSED, report
    pool = PoolStore(environments.root).load(reading.bundle_hash)
    assert pool is not None and pool.plan is not None and pool.plan.on_disk
    assert "== 47" in reading.verifier.test_files[LEDGER_TEST_FILE] and "47" not in pool.plan.files[LEDGER_TEST_FILE]


PACKAGED = """from ledger import balance

from . import BOTH


def test_of_its_package():
    assert balance(BOTH) == 47


def test_classes_within():
    class Total:
        \"\"\"a sum\"\"\"

        __slots__ = ("value",)
        limit = 50

    one = Total()
    one.value = balance(BOTH)
    assert one.value == 47
    assert one.value < getattr(Total, "limit")
    assert Total.__doc__ == "a sum"
"""


async def test_tests_of_a_package_need_no_disk(environments, judge, ledger):
    """Relative imports, and what a class within a test holds for whoever reads it."""
    path = "tests/test_packaged.py"
    files = {path: PACKAGED, "tests/__init__.py": 'BOTH = [("ann", 12), ("bob", 30), ("ann", 5)]\n'}
    names = ("test_of_its_package", "test_classes_within")
    verifier = ledger.verifier.model_copy(
        update={"test_files": files, "fail_to_pass": tuple(f"{path}::{n}" for n in names), "pass_to_pass": ()}
    )
    task = ledger.model_copy(update={"id": "packaged", "verifier": verifier})
    report = await judge(from_files(task, task.gold), task)
    assert report.verdict is Verdict.PASSED, report
    pool = PoolStore(environments.root).load(task.bundle_hash)
    assert pool is not None and pool.plan is not None and not pool.plan.on_disk
    assert "47" not in pool.plan.files[path] and "limit = 50" in pool.plan.files[path]
    assert (await judge(work(LEDGER_BUG), task)).verdict is Verdict.FAILED


@pytest.mark.slow
async def test_controls_admit_them(backend, environments, reading):
    controls = await run_controls(backend=backend, environments=environments, task=reading, k=1)
    assert controls.ok, controls.reason


@pytest.mark.parametrize(
    "name",
    ["SEARCH_SOURCE", *(pytest.param(name, marks=pytest.mark.slow) for name in ("SEARCH_LOUD", "LETTERS"))],
)
async def test_a_search_finds_nothing_in_them(judge, reading, name):
    code = {"SEARCH_LOUD": SEARCH_LOUD, "SEARCH_SOURCE": SEARCH_SOURCE, "LETTERS": LETTERS}[name]
    report = await judge(work(LEDGER_BUG + code), reading)
    assert report.verdict is Verdict.FAILED, report


@pytest.mark.slow
async def test_a_search_of_what_stays_in_them_is_adaptive(judge, environments, points):
    task = on_disk(points, PATH, TESTS)
    right = await judge(from_files(task, task.gold), task)
    assert right.verdict is Verdict.PASSED, right
    pool = PoolStore(environments.root).load(task.bundle_hash)
    assert pool is not None and pool.plan is not None and pool.plan.on_disk and pool.plan.residual
    assert "Point(6, 60)" in pool.plan.files[PATH]
    found = Patch(changes=(FileChange("ledger/__init__.py", (WRONG + SEARCH_POINTS).encode(), before=WRONG.encode()),))
    report = await judge(found, task)
    # A search that meets a sibling first gives its value, which the tests refuse.
    assert report.outcome in (Cause.ADAPTIVE, Cause.TESTS_FAILED), report


@pytest.mark.slow
async def test_tests_that_have_no_other_form_are_refused(backend, environments, ledger):
    """Hidden examples of a text file: pytest reads them from disk, with what they expect."""
    text = ">>> from ledger import balance\n>>> balance([('ann', 12)], start=8)\n20\n"
    verifier = ledger.verifier.model_copy(
        update={
            "test_files": {**ledger.verifier.test_files, "tests/examples.txt": text},
            "fail_to_pass": (*ledger.verifier.fail_to_pass, "tests/examples.txt::examples.txt"),
            "pytest_args": ("--doctest-glob=*.txt",),
        }
    )
    task = ledger.model_copy(update={"id": "examples", "verifier": verifier})
    controls = await run_controls(backend=backend, environments=environments, task=task, k=1)
    assert not controls.ok and controls.graded and not controls.noop, "refused before anything is graded"
    assert controls.reason.startswith("verifier.test_files: tests/") and "lies on disk as it is" in controls.reason
    assert "Write its tests as Python" in controls.reason


@pytest.mark.parametrize(
    ("path", "residual", "refused"), [("b.test.mts", 1, True), ("b.test.mts", 0, False), ("b.test.mjs", 1, False)]
)
def test_javascript_that_decides_on_disk_is_refused(path, residual, refused):
    """node takes all of its tests in memory or none."""
    paths = ("a.test.js", path)
    verifier = FrameworkVerifier(
        framework="node", test_files=dict.fromkeys(paths, ""), fail_to_pass=tuple(f"{one}::adds" for one in paths)
    )
    task = CALLS_TASK.model_copy(update={"verifier": verifier})
    plan = Plan(files=dict.fromkeys(paths, ""), ids={name: name for name in verifier.fail_to_pass}, residual=residual)
    refusal = refusal_of_tests(task, plan)
    assert (refusal is not None) is refused
    assert refusal is None or (
        refusal.field == "verifier.test_files" and "b.test.mts has no form in memory" in refusal.found
    )


async def test_drafts_of_one_package_are_observed_once(backend, environments, ledger, monkeypatch):
    """With the oracle's work, tasks that plant different bugs are one checkout."""
    started = []
    start = backend.start

    async def counted(*args, **kwargs):
        started.append(args)
        return await start(*args, **kwargs)

    monkeypatch.setattr(backend, "start", counted)
    wrong = LEDGER_BUG.replace("return start - sum(", "return sum(")
    overrides = {**ledger.environment.overrides, "ledger/__init__.py": wrong}
    other = ledger.environment.model_copy(update={"overrides": overrides})

    def draft(name, number, environment):
        text = f"{LEDGER_TESTS}\n\ndef test_once_more():\n    assert balance(BOTH) != {number}\n"
        passing = (*ledger.verifier.pass_to_pass, f"{LEDGER_TEST_FILE}::test_once_more")
        verifier = ledger.verifier.model_copy(update={"test_files": {LEDGER_TEST_FILE: text}, "pass_to_pass": passing})
        return ledger.model_copy(update={"id": name, "environment": environment, "verifier": verifier})

    counts = []
    for task in (draft("one", 46, ledger.environment), draft("two", 46, other), draft("three", 45, other)):
        before = len(started)
        limits = pool_limits(task)
        await canary_pool(task, task.verifier, backend=backend, environments=environments, limits=limits)
        counts.append(len(started) - before)
    assert counts[1] <= counts[0] - 2 and counts[2] >= counts[1] + 2, counts
