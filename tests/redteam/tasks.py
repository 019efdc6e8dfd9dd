"""What the red team attacks: a built package with hidden pytest tests, and a repository with hidden calls."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from sandbox.backends.base import Backend
from sandbox.packages.build import build_archive
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, PytestVerifier, TaskSpec
from tests.redteam.base import Pair, TaskName
from tests.redteam.half_right import half_right
from tests.sandbox.grading import backoff, compiled, greetings, prices, readers
from tests.sandbox.grading.audit.sessions.repository import TASK
from tests.sandbox.grading.javascript_attacks import ATTACKS
from tests.sandbox.grading.make import LEDGER, LEDGER_TEST_FILE, ledger_task
from tests.sandbox.grading.verifiers.test_toolchains import NODE, in_sandbox
from tests.sandbox.shelf import PIN, put_toolchain, write_sdist

CHECKS = '''"""Checks for people who test against a ledger."""


def assert_balance(entries, expected, start=0):
    """Fail unless the entries add up to `expected`."""
    from ledger import balance

    found = balance(entries, start)
    if found != expected:
        raise AssertionError(f"{found} is not {expected}")
    return True
'''
THROUGH_CHECKS = """from ledger import balance
from ledger.checks import assert_balance


def test_balance():
    assert assert_balance([("ann", 12), ("bob", 30), ("ann", 5)], 47) is True


def test_balance_from_a_start():
    assert balance([("ann", 12)], start=8) == 20
    assert balance([("bob", 41), ("cy", 30)], start=500) == 571
"""
TRUTHS = """import unittest

from ledger import balance


class Truths(unittest.TestCase):
    def test_balance(self):
        self.assertTrue(balance([("ann", 12), ("bob", 30), ("ann", 5)]) == 47)

    def test_from_a_start(self):
        self.assertTrue(balance([("ann", 12)], start=8) == 20)
"""
HASTY = TASK.model_copy(
    update={"id": "inventory-hasty", "verifier": TASK.verifier.model_copy(update={"timeout_seconds": 1.0})}
)
"""For exploits that use up the time."""
_compiled: dict[TaskName, tuple[str, TaskSpec]] = {
    "greet-go": ("go", greetings.GO), "greet-rust": ("cargo", greetings.RUST),
    "greet-go-helped": ("go", compiled.GO_HELPED), "greet-go-golden": ("go", compiled.GO_GOLDEN),
    "greet-go-counted": ("go", greetings.GO_COUNTED), "greet-rust-counted": ("cargo", greetings.RUST_COUNTED),
    "greet-go-two": ("go", compiled.GO_TWO), "money-go": ("go", compiled.GO_TABLE),
    "backoff-go": ("go", backoff.GO), "backoff-rust": ("cargo", backoff.RUST),
    "greet-go-kept": ("go", readers.GO_KEPT), "greet-rust-kept": ("cargo", readers.RUST_KEPT),
    "greet-rust-helped": ("cargo", compiled.RUST_HELPED), "greet-rust-golden": ("cargo", compiled.RUST_GOLDEN),
}  # fmt: skip
COMPILED = {name: (program, half_right(task)) for name, (program, task) in _compiled.items()}
"""Those whose toolchain the sandboxes of this machine may lack, with the program that they need."""
_plain: dict[TaskName, TaskSpec] = {
    "inventory": TASK,
    "hasty": HASTY,
    "prices": prices.TASK,
    "greet-python": greetings.PYTHON_COUNTED,
    "greet-python-helper": readers.IN_HELPER_TASK,
    "kept-js": readers.JS_KEPT,
    "golden-js": ATTACKS["golden"].task, "constant-js": ATTACKS["constant"].task, "table-js": ATTACKS["table"].task,
    "set-up-js": ATTACKS["set-up"].task, "hook-js": ATTACKS["hook"].task, "helper-js": ATTACKS["helper"].task,
    "helper-file-js": ATTACKS["helper-file"].task, "helper-on-disk-js": ATTACKS["helper-on-disk"].task,
    "truth-js": ATTACKS["truth"].task,
}  # fmt: skip
PLAIN = {name: half_right(task) for name, task in _plain.items()}
"""Those that need no environment to be built."""


def missing(pairs: Iterable[Pair]) -> str:
    """What this machine lacks for these pairs, with the remedy; "" when nothing is missing."""
    ids = [pair.exploit.id for pair in pairs if pair.task.endswith("-js")]
    if not ids or in_sandbox("node"):
        return ""
    return f"sandboxes have no node, which {', '.join(ids)} need: apt-get install nodejs, or name other exploits"


async def build(backend: Backend, environments: EnvironmentStore) -> dict[TaskName, TaskSpec]:
    """The tasks, ready in the store. Raises PackageError, SandboxError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = write_sdist(folder / "ledger-1.2.tar.gz", LEDGER)
        cache = put_toolchain(folder / "downloads")
        built = await build_archive(environments, archive, PIN, backend=backend, cache=cache)
    ledger = ledger_task(built)
    return {
        "ledger": ledger,
        "ledger-checks": with_checks(ledger),
        "ledger-truths": with_tests(
            ledger, "ledger-truths", TRUTHS, ("Truths::test_balance", "Truths::test_from_a_start")
        ),
        "sums-js": NODE,
        "greet-js": half_right(greetings.JS),
        **{name: task for name, (program, task) in COMPILED.items() if in_sandbox(program)},
        **PLAIN,
    }


def with_tests(task: TaskSpec, name: str, tests: str, ids: tuple[str, ...]) -> TaskSpec:
    """The task with other hidden tests, all of which have to start to pass."""
    assert isinstance(task.verifier, PytestVerifier)
    failing = tuple(f"{LEDGER_TEST_FILE}::{test}" for test in ids)
    changes = {"test_files": {LEDGER_TEST_FILE: tests}, "fail_to_pass": failing, "pass_to_pass": ()}
    return task.model_copy(update={"id": name, "verifier": task.verifier.model_copy(update=changes)})


def with_checks(task: TaskSpec) -> TaskSpec:
    """Hidden tests of which one goes through a helper that the product ships; the other one compares, because a task
    without comparisons asks for too few bits and its controls refuse it."""
    assert isinstance(task.environment, BuiltEnvironment)
    overrides = {**task.environment.overrides, "ledger/checks.py": CHECKS}
    environment = task.environment.model_copy(update={"overrides": overrides})
    ids = ("test_balance", "test_balance_from_a_start")
    return with_tests(task.model_copy(update={"environment": environment}), "ledger-checks", THROUGH_CHECKS, ids)
