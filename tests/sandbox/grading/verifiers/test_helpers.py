"""Parts of the product that hidden tests assert with."""

from __future__ import annotations

import pytest

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.controls import run_controls
from sandbox.grading.grader import grade
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers.helpers import helpers_of, neutralised
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import FrameworkVerifier, InlineEnvironment, PytestVerifier, TaskSpec
from tests.sandbox.grading.make import LEDGER_BUG, LEDGER_SOURCE

TESTING = '''"""Checks for tests of ledgers."""

import contextlib

from ledger import balance


def same_balance(entries, expected):
    if balance(entries) != expected:
        raise AssertionError("another balance")


@contextlib.contextmanager
def balanced(entries, expected):
    yield entries
    same_balance(entries, expected)


class LedgerTest:
    def assert_balance(self, entries, expected):
        same_balance(entries, expected)

    def entries(self):
        return [("ann", 12)]
'''
HIDDEN = """import ledger.testing
from ledger import owners
from ledger.testing import balanced, same_balance as same


def test_balance():
    same([("ann", 12), ("bob", 30)], 42)


def test_context():
    with balanced([("ann", 12)], 12):
        pass


class TestMore(ledger.testing.LedgerTest):
    def test_more(self):
        self.assert_balance(self.entries(), 12)


def test_owners():
    assert owners([("ann", 1)]) == ["ann"]
"""
IDS = ("test_balance", "test_context", "TestMore::test_more")


@pytest.fixture
def task(ledger) -> TaskSpec:
    verifier = PytestVerifier(
        test_files={"tests/test_ledger.py": HIDDEN},
        fail_to_pass=tuple(f"tests/test_ledger.py::{name}" for name in IDS),
        pass_to_pass=("tests/test_ledger.py::test_owners",),
        timeout_seconds=20.0,
    )
    environment = ledger.environment.model_copy(
        update={"overrides": {"ledger/__init__.py": LEDGER_BUG, "ledger/testing.py": TESTING}}
    )
    return ledger.model_copy(update={"verifier": verifier, "environment": environment})


def change(path: str, text: str, before: str) -> FileChange:
    return FileChange(path, text.encode(), before=before.encode())


@pytest.mark.integration
async def test_a_loosened_helper_of_the_product_is_not_carried(judge, task):
    loose = neutralised(TESTING, {"same_balance", "balanced", "LedgerTest"})
    assert loose is not None and "AssertionError" not in loose
    report = await judge(Patch(changes=(change("ledger/testing.py", loose, TESTING),)), task)
    assert report.verdict is Verdict.FAILED, report.cases
    assert any("ledger/testing.py" in dropped for dropped in report.dropped)


async def test_work_beside_a_helper_passes(judge, task):
    new = TESTING.replace('"""Checks', '"""More checks')
    changes = (change("ledger/__init__.py", LEDGER_SOURCE, LEDGER_BUG), change("ledger/testing.py", new, TESTING))
    report = await judge(Patch(changes=changes), task)
    assert report.verdict is Verdict.PASSED, report.cases


@pytest.mark.slow
async def test_a_task_whose_own_work_lies_in_such_a_helper_is_refused(backend, environments, task):
    own = task.model_copy(update={"gold": {**task.gold, "ledger/testing.py": TESTING + "\nX = 1\n"}})
    report = await grade(backend=backend, environments=environments, task=own, patch=Patch())
    assert report.verdict is Verdict.INFRA_ERROR and report.outcome is Cause.TASK_INVALID
    assert "ledger/testing.py" in report.cause and "compare what the product computes" in report.cause


@pytest.mark.integration
async def test_controls_name_the_tests_that_need_nothing_of_the_work(backend, environments, task):
    """A generator keeps the task without them, and no canaries were made for them."""
    own = task.model_copy(update={"gold": {**task.gold, "ledger/testing.py": TESTING + "\nX = 1\n"}})
    controls = await run_controls(backend=backend, environments=environments, task=own)
    assert (controls.ok, controls.graded, controls.canaries) == (False, True, 0)
    assert {test_id.partition("::")[2] for test_id in controls.freed} == set(IDS)
    assert "does nothing" in controls.reason and not controls.flaky


async def test_what_tests_only_call_is_not_protected(judge, task):
    """`owners` is called by an assertion that compares its result: a part of the product like any other."""
    text = LEDGER_SOURCE + "\n\ndef count(entries):\n    return len(entries)\n"
    report = await judge(Patch(changes=(change("ledger/__init__.py", text, LEDGER_BUG),)), task)
    assert report.verdict is Verdict.PASSED, report.cases


def test_helpers_are_followed_through_re_exports(tmp_path):
    files = {
        "pkg/__init__.py": "from .checks import same_balance as same\nfrom pkg.other import *\n",
        "pkg/checks.py": "def same_balance(a):\n    assert a\n",
        "pkg/other.py": "def check_it(a):\n    assert a\n\n\ndef plain(a):\n    return a\n",
    }
    test = "import pkg\n\n\ndef test():\n    pkg.same(1)\n    pkg.check_it(2)\n    assert pkg.plain(3) == 3\n"
    verifier = PytestVerifier(test_files={"test_it.py": test}, fail_to_pass=("test_it.py::test",))
    found = helpers_of(inline(files, verifier), verifier, EnvironmentStore(tmp_path))
    assert [helper.path for helper in found] == ["pkg/checks.py", "pkg/other.py"]
    assert "return a" in (found[1].neutral or "") and "assert" not in (found[1].neutral or "")


def inline(files, verifier) -> TaskSpec:
    return TaskSpec(
        id="t", source="mutation", instruction="Fix it.", environment=InlineEnvironment(files=files),
        verifier=verifier, gold={"x": "y"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "test", "text", "files", "found"),
    [
        ("node", "test/a.test.js", "import { same } from '../lib/testing.js';",
         {"lib/testing.js": "import assert from 'node:assert';", "lib/index.js": "import assert from 'node:assert';"},
         ["lib/testing.js"]),
        ("jest", "a.test.ts", "const { same } = require('./index');",
         {"index.ts": "export * from './test-helpers';", "test-helpers.ts": "throw new AssertionError()"},
         ["test-helpers.ts"]),
        ("go", "a/a_test.go", "package a", {"a/a.go": "package a", "a/help.go": 'package a\n\nimport "testing"\n'},
         ["a/help.go"]),
        ("cargo", "tests/a.rs", "use a;", {"src/lib.rs": "fn assert_ok() {}", "src/testing.rs": "macro_rules! assert_same { }"},
         ["src/testing.rs"]),
    ],
)  # fmt: skip
def test_other_languages(tmp_path, framework, test, text, files, found):
    verifier = FrameworkVerifier(framework=framework, test_files={test: text}, fail_to_pass=("a::b",))
    assert [h.path for h in helpers_of(inline(files, verifier), verifier, EnvironmentStore(tmp_path))] == found


@pytest.mark.parametrize("text", ["def (", "x = 1\n", ""])
def test_nothing_to_neutralise(text):
    assert neutralised(text, {"f"}) is None
