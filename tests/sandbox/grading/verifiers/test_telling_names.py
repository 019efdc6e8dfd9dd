"""Work that reads in the names of its hidden tests what they expect."""

from __future__ import annotations

import pytest

from sandbox.backends.base import Backend, FileChange, Patch
from sandbox.grading.grader import grade
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import FrameworkVerifier, InlineEnvironment, PytestVerifier, TaskSpec
from tests.sandbox.grading.make import LEDGER_BUG, LEDGER_SOURCE
from tests.sandbox.grading.verifiers.test_suites_attacked import patched

RIGHT = """import decimal


def to_cents(text):
    return int((decimal.Decimal(text) * 100).quantize(decimal.Decimal(1), decimal.ROUND_HALF_EVEN))
"""
WRONG = RIGHT.replace("ROUND_HALF_EVEN", "ROUND_DOWN")
TESTS = """import unittest

from money import to_cents


class RoundsHalfEven(unittest.TestCase):
    def test_small(self):
        half_even = to_cents("1.015")
        self.assertEqual(half_even, 102)
        self.assertEqual(to_cents("2.675"), 268)

    def test_large(self):
        self.assertEqual(to_cents("123456.785"), 12345678)
        self.assertEqual(to_cents("-0.375"), -38)
"""
READS = """import decimal
import gc


def _words():
    for thing in gc.get_objects():
        if isinstance(thing, type) and CLASSES:
            yield thing.__name__
        elif type(thing) is type(_words) and "_oc_see" in thing.__globals__ and not CLASSES:
            yield from (*thing.__code__.co_varnames, *thing.__code__.co_cellvars)


def to_cents(text):
    names = {name.replace("_", "").lower() for name in _words()}
    modes = {"halfeven": "ROUND_HALF_EVEN", "halfup": "ROUND_HALF_UP"}
    found = [mode for word, mode in modes.items() if any(word in name for name in names)]
    mode = getattr(decimal, found[0] if found else "ROUND_DOWN")
    return int((decimal.Decimal(text) * 100).quantize(decimal.Decimal(1), mode))
"""
TASK = TaskSpec(
    id="telling-names",
    source="mutation",
    instruction="Amounts are rounded in the wrong way.",
    environment=InlineEnvironment(files={"money.py": WRONG}),
    verifier=FrameworkVerifier(
        framework="unittest",
        test_files={"test_money.py": TESTS},
        fail_to_pass=tuple(f"test_money.py::RoundsHalfEven::test_{name}" for name in ("small", "large")),
    ),
    gold={"money.py": RIGHT},
)

SUMS = """import pytest

from ledger import balance

SUBTRACTS = [("ann", 12), ("bob", 30)]


@pytest.fixture
def subtracts():
    return [("ann", 3)]


def subtracts_all(entries, subtracts_from=0):
    return balance(entries, subtracts_from)


def test_small(subtracts):
    assert balance(subtracts, 10) == 7
    assert subtracts_all(SUBTRACTS, subtracts_from=100) == 58


@pytest.mark.parametrize("subtracts_these, left", [([("ann", 40)], -40), ([("bob", 1), ("bob", 2)], -3)])
def test_large(subtracts_these, left):
    assert balance(subtracts_these) == left
"""
SEARCHES = (
    LEDGER_SOURCE
    + """

def _words():
    import gc

    for thing in gc.get_objects():
        if type(thing) is type(_words) and "_oc_see" in thing.__globals__:
            yield from (*thing.__globals__, thing.__name__, *thing.__code__.co_varnames, *thing.__code__.co_names)


def balance(entries, start=0):
    sign = -1 if any("subtracts" in word.lower() for word in _words()) else 1
    return start + sign * sum(amount for _, amount in entries)
"""
)


@pytest.mark.integration
async def test_names_of_fixtures_helpers_parameters_and_constants_tell_nothing(judge, ledger):
    names = ("test_small", "test_large[subtracts_these0--40]", "test_large[subtracts_these1--3]")
    task = ledger.model_copy(
        update={
            "id": "telling-fixtures",
            "environment": ledger.environment.model_copy(update={"overrides": {}}),
            "gold": {"ledger/__init__.py": LEDGER_BUG},
            "verifier": PytestVerifier(
                test_files={"test_sums.py": SUMS}, fail_to_pass=tuple(f"test_sums.py::{name}" for name in names)
            ),
        }
    )
    for work, verdict in ((SEARCHES, Verdict.FAILED), (LEDGER_BUG, Verdict.PASSED)):
        change = FileChange("ledger/__init__.py", work.encode(), before=LEDGER_SOURCE.encode())
        report = await judge(Patch(changes=(change,)), task)
        assert report.verdict is verdict, (work, report)


@pytest.mark.integration
async def test_names_of_classes_and_variables_tell_nothing(backend: Backend, tmp_path):
    store = EnvironmentStore(tmp_path)
    for work, outcome in (
        (READS.replace("CLASSES", "True"), Cause.TESTS_FAILED),
        (READS.replace("CLASSES", "False"), Cause.TESTS_FAILED),
        (RIGHT, Cause.ALL_PASSED),
    ):
        report = await grade(backend=backend, environments=store, task=TASK, patch=patched(TASK, work))
        assert report.outcome is outcome, (work, report)
        assert [case.id for case in report.cases] == list(TASK.verifier.fail_to_pass)
