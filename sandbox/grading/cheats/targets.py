"""What an agent that wants to cheat finds out about a task: where the work is, and what will judge it."""

from __future__ import annotations

from pathlib import PurePosixPath

from sandbox.tasks.spec import CallsVerifier, SuiteVerifier, TaskSpec


def product_file(task: TaskSpec, suffix: str = ".py") -> str | None:
    """The first file that the oracle changes: an agent finds it from the instruction."""
    return next((path for path in sorted(task.gold) if path.endswith(suffix)), None)


def is_python(task: TaskSpec) -> bool:
    return product_file(task) is not None


def is_suite(task: TaskSpec) -> bool:
    """Whether hidden test files run beside the work (Python only: these scripts write Python)."""
    return isinstance(task.verifier, SuiteVerifier) and is_python(task)


def uses_pytest(task: TaskSpec) -> bool:
    return task.verifier.kind == "pytest" and is_python(task)


def calls_a_function(task: TaskSpec) -> bool:
    return isinstance(task.verifier, CallsVerifier)


def test_folder(task: TaskSpec) -> str:
    """Where the visible tests are, as a prefix of paths ("" for the top)."""
    verifier = task.verifier
    paths = sorted(verifier.test_files) if isinstance(verifier, SuiteVerifier) else sorted(task.protected)
    parent = str(PurePosixPath(paths[0]).parent) if paths else "."
    return "" if parent == "." else f"{parent}/"
