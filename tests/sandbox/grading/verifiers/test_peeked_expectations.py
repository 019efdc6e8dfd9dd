"""Expectations that stay in the sandbox: they are worth no bits, since work can meet them without knowing better."""

from __future__ import annotations

import pytest

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.controls.run import run_controls
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers.canary_pool import PoolStore
from sandbox.tasks.entropy import MIN_ENTROPY
from sandbox.tasks.spec import PytestVerifier
from tests.sandbox.grading.make import LEDGER_BUG, LEDGER_SOURCE
from tests.sandbox.grading.verifiers.test_differential import WRONG, points  # noqa: F401

pytestmark = pytest.mark.integration

PATIENT = '''
def _patient():
    """The same wrong sums whatever is asked; equal to whatever one of several sums would be."""
    ways = [lambda a, b: a - b, lambda a, b: a + b, lambda a, b: a * b]
    held, wrong, equal = {}, Point.__add__, Point.__eq__
    def values(point):
        return held[id(point)][1] if id(point) in held else {(point.x, point.y)}
    def add(self, other):
        made = wrong(self, other)
        held[id(made)] = made, {(a + c, way(b, d)) for a, b in values(self) for c, d in values(other) for way in ways}
        return made
    Point.__add__ = add
    Point.__eq__ = lambda self, other: bool(values(self) & values(other))
_patient()
'''
TEST = "tests/test_reference.py"
REFERENCES = """import json
import pathlib

from ledger import balance

GOLDEN = pathlib.Path(__file__).parent / "golden.json"


def reference(entries, start=0):
    made = start
    for _, amount in entries:
        made += amount
    return made


def golden(name):
    return json.loads(GOLDEN.read_text())[name]


def test_one():
    assert balance([("a", 71)]) == reference([("a", 71)])


def test_start():
    assert balance([("a", 13)], start=6) == reference([("a", 13)], 6)


def test_two():
    assert balance([("a", 3), ("b", 5)]) == golden("two")


def test_three():
    assert balance([("a", 3), ("b", 5), ("c", 114)]) == golden("three")


def test_far():
    assert balance([("a", 300), ("b", 5000)]) == golden("far")
"""
PEEKS = '''

def balance(entries, start=0):
    """Whatever stands beside it."""
    import sys
    frame = sys._getframe(1)
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if type(value) is tuple and len(value) == 2 and all(hasattr(part, "__code__") for part in value):
                try:
                    return value[1]()
                except BaseException:
                    pass
        frame = frame.f_back
    return start - sum(amount for _, amount in entries)
'''

FINDS = '''

def balance(entries, start=0):
    """Whatever the data or the functions beside the tests say."""
    import json, pathlib, sys
    for path in pathlib.Path("tests").rglob("*.json"):
        known = json.loads(path.read_text())
        return known[{1: "far", 2: "two", 3: "three"}.get(len(entries), "two")]
    for module in list(sys.modules.values()):
        if hasattr(module, "reference"):
            return module.reference(entries, start)
    return start - sum(amount for _, amount in entries)
'''


def left(text: str) -> Patch:
    return Patch(changes=(FileChange("ledger/__init__.py", text.encode(), before=LEDGER_BUG.encode()),))


@pytest.fixture
def references(ledger):
    names = ("test_one", "test_start", "test_two", "test_three", "test_far")
    return ledger.model_copy(
        update={
            "id": "references",
            "verifier": PytestVerifier(
                test_files={TEST: REFERENCES, "tests/golden.json": '{"two": 8, "three": 122, "far": 5300}'},
                fail_to_pass=tuple(f"{TEST}::{name}" for name in names),
                timeout_seconds=10.0,
            ),
        }
    )


@pytest.mark.slow
async def test_objects_equal_to_each_of_several_candidates_earn_no_bits(judge, points, environments, backend):  # noqa: F811
    """They hold the same wrong values whatever is asked, and no canary is among their candidates: grading alone is fooled,
    so a task whose tests show every expectation is not admitted."""
    work = Patch(changes=(FileChange("ledger/__init__.py", (WRONG + PATIENT).encode(), before=WRONG.encode()),))
    fooled = await judge(work, points)
    assert fooled.verdict is Verdict.PASSED, "the exploit of this test has to work where nothing refuses the task"
    pool = PoolStore(environments.root).load(points.bundle_hash)
    assert pool is not None and pool.siblings and pool.entropy == 0.0
    for full in (False, True):
        controls = await run_controls(backend=backend, environments=environments, task=points, k=1, full=full)
        assert controls.graded and not controls.ok and "0.0 bits" in controls.reason


async def test_references_and_data_of_the_tests_stay_outside(judge, references, environments):
    """What tests compute or read to compare with is recorded, and is neither in their text nor on the disk."""
    right = await judge(from_files(references, references.gold), references)
    assert right.verdict is Verdict.PASSED, right
    pool = PoolStore(environments.root).load(references.bundle_hash)
    assert pool is not None and pool.plan is not None and pool.entropy is not None
    assert pool.entropy >= MIN_ENTROPY and pool.plan.unshown == ("tests/golden.json",)
    assert "amount" not in pool.plan.files[TEST] and "read_text" not in pool.plan.files[TEST]
    peeks = await judge(left(LEDGER_SOURCE + PEEKS), references)
    assert peeks.verdict is Verdict.FAILED, peeks
    finds = await judge(left(LEDGER_SOURCE + FINDS), references)
    assert finds.verdict is Verdict.FAILED, finds


@pytest.mark.slow
async def test_data_that_the_product_reads_is_there(judge, references, environments):
    """A file that is an input as well stays on the disk."""
    tests = REFERENCES.replace('balance([("a", 300), ("b", 5000)])', 'balance([("a", len(GOLDEN.read_text()))])')
    tests = tests.replace('golden("far")', "35")
    verifier = references.verifier.model_copy(
        update={"test_files": {TEST: tests, "tests/golden.json": '{"two": 8, "three": 122, "far": 53}'}}
    )
    task = references.model_copy(update={"id": "read", "verifier": verifier})
    right = await judge(from_files(task, task.gold), task)
    assert right.verdict is Verdict.PASSED, right
    peeks = await judge(left(LEDGER_SOURCE + PEEKS), task)
    assert peeks.verdict is Verdict.FAILED, peeks
