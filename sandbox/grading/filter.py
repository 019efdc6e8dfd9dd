"""Which of an agent's changes are carried into grading.

Dropped is whatever could change the judge instead of the product: git's own files, byte code and other files that
an interpreter picks up by itself, test configuration, the hidden test files, protected paths, and new modules that
would hide the standard library or the test runner. A path that the task's own oracle changes is always legitimate.
"""

from __future__ import annotations

import sys
from pathlib import PurePosixPath

from sandbox.backends.base import FileChange, Patch
from sandbox.tasks.spec import PytestVerifier, TaskSpec, check_relative_path

SUFFIXES = (".pyc", ".pyo", ".pth", ".so", ".egg-link")
FOLDERS = frozenset({".git", "__pycache__", ".pytest_cache"})
START_UP_FILES = frozenset({"sitecustomize.py", "usercustomize.py"})
TEST_CONFIGURATION = frozenset(
    {
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
    }
)
RUNNER_MODULES = frozenset(
    {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup"}
)
SOURCE_ROOTS = ("src", "lib")
"""Directories that a package may put on the interpreter's path; names directly below them count as top-level."""


def split(task: TaskSpec, patch: Patch) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
    """The changes to carry into grading, and `path: reason` for each one left out."""
    kept: list[FileChange] = []
    dropped = [f"{path}: {reason}" for path, reason in patch.skipped]
    for change in patch.changes:
        reason = reason_to_drop(task, change)
        if reason is None:
            kept.append(change)
        else:
            dropped.append(f"{change.path}: {reason}")
    return tuple(kept), tuple(dropped)


def reason_to_drop(task: TaskSpec, change: FileChange) -> str | None:
    """Why `change` is not carried into grading, or None."""
    try:
        path = check_relative_path(change.path)
    except ValueError:
        return "not a plain path inside the repository"
    for protected in task.protected:
        if path == protected or (protected.endswith("/") and path.startswith(protected)):
            return "protected by the task"
    if isinstance(task.verifier, PytestVerifier):
        for test_file in task.verifier.test_files:
            if path == test_file:
                return "replaced by the hidden tests"
            if path.startswith(f"{test_file}/") or test_file.startswith(f"{path}/"):
                return "in the way of the hidden tests"
    if path in task.gold:
        return None
    pure = PurePosixPath(path)
    if FOLDERS.intersection(pure.parts):
        return "inside a directory of caches or history"
    if path.endswith(SUFFIXES):
        return "compiled or start-up file"
    if pure.name in START_UP_FILES:
        return "start-up file of the interpreter"
    if pure.name in TEST_CONFIGURATION:
        return "test configuration"
    if change.before is None and _top_level_name(pure) in sys.stdlib_module_names | RUNNER_MODULES:
        return "would hide a module of the standard library or the test runner"
    return None


def _top_level_name(path: PurePosixPath) -> str:
    """The importable name that a new file adds at the top level of the checkout or of a source root in it."""
    parts = path.parts[1:] if path.parts[0] in SOURCE_ROOTS and len(path.parts) > 1 else path.parts
    return parts[0].removesuffix(".py") if len(parts) > 1 or parts[0].endswith(".py") else ""
