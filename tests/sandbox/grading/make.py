"""Small tasks with hidden calls and hidden pytest tests, and pieces of patches against them."""

from __future__ import annotations

from sandbox.backends.base import FileChange, Patch
from sandbox.packages.build import BuiltPackage
from sandbox.tasks.spec import BuiltEnvironment, CallsVerifier, InlineEnvironment, PytestVerifier, TaskSpec

BUGGY = "def total(items):\n    return sum(items) + 1\n"
FIXED = "def total(items):\n    return sum(items)\n"

CALLS_TASK = TaskSpec(
    id="total",
    source="procedural",
    instruction="`total([1, 2])` gives 4.",
    environment=InlineEnvironment(files={"totals.py": BUGGY, "helpers.py": "OFFSET = 0\n", "pkg/deep.py": "X = 1\n"}),
    verifier=CallsVerifier(
        module="totals.py",
        function="total",
        cases=tuple((repr(([n, 2],)), repr(n + 2)) for n in range(24)),
        timeout_seconds=1.0,
    ),
    gold={"totals.py": FIXED},
)


def patch(**files: str) -> Patch:
    """A patch of `totals` and other top-level modules: name → text."""
    return Patch(changes=tuple(FileChange(f"{name}.py", text.encode(), before=b"x") for name, text in files.items()))


LEDGER_SOURCE = '''"""Sums of entries."""


def balance(entries, start=0):
    """`start` and the amounts of `entries`, each a (name, amount) pair."""
    return start + sum(amount for _, amount in entries)


def owners(entries):
    """Names in the order of their first entry."""
    return list(dict.fromkeys(name for name, _ in entries))


def largest(entries):
    """The entry with the largest amount; ValueError when there is none."""
    if not entries:
        raise ValueError("no entries")
    return max(entries, key=lambda entry: entry[1])
'''
LEDGER_BUG = LEDGER_SOURCE.replace("return start + sum(", "return start - sum(")
LEDGER_TESTS = """import pytest

from ledger import balance, largest, owners

BOTH = [("ann", 12), ("bob", 30), ("ann", 5)]


def test_balance():
    assert balance(BOTH) == 47


def test_balance_from_a_start():
    assert balance([("ann", 12)], start=8) == 20


@pytest.mark.parametrize("entries, expected", [([], 0), ([("a", 1)], 1), ([("a", 7), ("b", -3)], 4)])
def test_small_ledgers(entries, expected):
    assert balance(entries) == expected


class TestOwners:
    def test_each_once(self):
        assert owners(BOTH) == ["ann", "bob"]

    def test_none(self):
        assert owners([]) == []


def test_largest():
    assert largest(BOTH) == ("bob", 30)


def test_largest_of_none():
    with pytest.raises(ValueError):
        largest([])
"""
LEDGER_TEST_FILE = "tests/test_ledger.py"
LEDGER = {
    "ledger/__init__.py": LEDGER_SOURCE,
    LEDGER_TEST_FILE: LEDGER_TESTS,
    "README.md": "# ledger\n",
    "PKG-INFO": "Metadata-Version: 2.1\nName: ledger\nVersion: 1.2\n",
}
LEDGER_FAILING = ("test_balance", "test_balance_from_a_start", "test_small_ledgers[entries1-1]",
                  "test_small_ledgers[entries2-4]")  # fmt: skip
LEDGER_PASSING = ("test_small_ledgers[entries0-0]", "TestOwners::test_each_once", "TestOwners::test_none",
                  "test_largest", "test_largest_of_none")  # fmt: skip
LEDGER_VISIBLE = LEDGER_TESTS[: LEDGER_TESTS.index("def test_balance")] + LEDGER_TESTS[LEDGER_TESTS.index("class ") :]


def ledger_task(built: BuiltPackage) -> TaskSpec:
    """Sums are taken away instead of added; the tests that notice are not in the checkout."""
    overrides = {"ledger/__init__.py": LEDGER_BUG, LEDGER_TEST_FILE: LEDGER_VISIBLE}
    return TaskSpec(
        id="ledger",
        source="mutation",
        instruction="Balances have the wrong sign.",
        environment=BuiltEnvironment(digest=built.environment.digest, overrides=overrides),
        verifier=PytestVerifier(
            test_files={LEDGER_TEST_FILE: LEDGER_TESTS},
            fail_to_pass=tuple(f"{LEDGER_TEST_FILE}::{name}" for name in LEDGER_FAILING),
            pass_to_pass=tuple(f"{LEDGER_TEST_FILE}::{name}" for name in LEDGER_PASSING),
            timeout_seconds=10.0,
        ),
        gold={"ledger/__init__.py": LEDGER_SOURCE},
        protected=(LEDGER_TEST_FILE,),
    )


def work(text: str, path: str = "ledger/__init__.py") -> Patch:
    """A patch that leaves `text` in a file of the ledger."""
    return Patch(changes=(FileChange(path, text.encode(), before=LEDGER_BUG.encode()),))
