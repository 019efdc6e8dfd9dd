"""Filter an agent's changes before grading.

The filter drops every change that could affect the judge instead of the product: git's own files, byte code and other
files that an interpreter picks up by itself, test and build configuration, installed dependencies, the hidden test files,
protected paths, files among the tests, and new modules that would hide the standard library or the test runner.
Dropped paths stay as they are in the pristine image. A path that the task's own oracle changes is always legitimate.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.adapters import ADAPTERS, adapter_of
from sandbox.grading.verdict.findings import MAX_FINDINGS, ReportFinding, Rule, finding
from sandbox.repositories.files import check_relative_path
from sandbox.tasks.spec import FrameworkVerifier, SuiteVerifier, TaskSpec

MAX_CHANGES = 2000
MAX_BYTES = 32 << 20
SUFFIXES = (".pyc", ".pyo", ".pth", ".so", ".pyd", ".dll", ".dylib", ".class", ".egg-link", ".whl")
WORK_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"}
)
"""What honest work leaves behind as well: dropped, and nothing to find."""
DEPENDENCY_FOLDERS = frozenset({".venv", "venv", "site-packages", "node_modules"})
GIT_FILES = frozenset({".gitattributes", ".gitmodules"})
START_UP_FILES = frozenset({"sitecustomize.py", "usercustomize.py", ".pythonrc", ".env", ".envrc", ".npmrc"})
BUILD_FILES = frozenset({"Makefile", "makefile", "GNUmakefile", "justfile", "noxfile.py", "setup.py"})
"""Nothing of grading runs them; that they stay pristine makes it true for a task's own runner as well."""
RUNNER_MODULES = frozenset(
    {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup"}
)
TEST_FOLDERS = frozenset({"test", "tests", "__tests__"})
TEST_FILE = re.compile(r"(test_.*|.*_test|tests?|.*\.(test|spec))\.\w+")
WORD_ENDS = re.compile(r"[\s;&|()<>'\"=]+")
SOURCE_ROOTS = ("src", "lib")
"""Directories that a package may put on the interpreter's path; names directly below them count as top-level."""


@dataclass(frozen=True, slots=True)
class Drop:
    rule: Rule | None
    """None: nothing that anybody needs to look at."""
    reason: str


@dataclass(frozen=True, slots=True)
class FilteredPatch:
    """The changes of a patch that are graded, and those that are not."""

    changes: tuple[FileChange, ...]
    dropped: tuple[str, ...]
    """`path: reason` for each change left out."""
    findings: tuple[ReportFinding, ...]


def filter_patch(task: TaskSpec, patch: Patch) -> FilteredPatch:
    """Keep the changes that are graded; say of the others why not."""
    kept: list[FileChange] = []
    dropped = [f"{path}: {reason}" for path, reason in patch.skipped]
    odd = [(path, reason) for path, reason in patch.skipped if not WORK_FOLDERS.intersection(path.split("/"))]
    noticed = [finding(Rule.ODD_PATH, f"{path}: {reason}") for path, reason in odd]
    if not patch.changes and not odd:
        noticed.append(finding(Rule.NO_EDIT))
    size = 0
    for change in patch.changes:
        drop = reason_to_drop(task, change)
        size += len(change.content or b"") if drop is None else 0
        if drop is None and (len(kept) >= MAX_CHANGES or size > MAX_BYTES):
            drop = Drop(Rule.ODD_PATH, f"beyond {MAX_CHANGES} files or {MAX_BYTES} bytes of one patch")
        if drop is None:
            kept.append(change)
        else:
            dropped.append(f"{change.path}: {drop.reason}")
            if drop.rule is not None:
                noticed.append(finding(drop.rule, f"{change.path}: {drop.reason}"))
    return FilteredPatch(tuple(kept), tuple(dropped), tuple(noticed[:MAX_FINDINGS]))


def without_paths(filtered: FilteredPatch, paths: Collection[str]) -> FilteredPatch:
    """`filtered` without changes of these files, which hidden tests assert with (`helpers.py`)."""
    held = [change for change in filtered.changes if change.path in paths]
    if not held:
        return filtered
    reason = "hidden tests assert with it"
    return FilteredPatch(
        changes=tuple(change for change in filtered.changes if change.path not in paths),
        dropped=(*filtered.dropped, *(f"{change.path}: {reason}" for change in held)),
        findings=(*filtered.findings, *(finding(Rule.TEST_EDIT, f"{change.path}: {reason}") for change in held))[
            :MAX_FINDINGS
        ],
    )


def reason_to_drop(task: TaskSpec, change: FileChange) -> Drop | None:
    """Why `change` is not graded, or None."""
    try:
        path = check_relative_path(change.path)
    except ValueError:
        return Drop(Rule.ODD_PATH, "not a plain path inside the repository")
    if not PurePosixPath(path).parts:  # "." is the repository itself
        return Drop(Rule.ODD_PATH, "no path of a file")
    for protected in task.protected:
        if path == protected or (protected.endswith("/") and path.startswith(protected)):
            return Drop(Rule.TEST_EDIT, "protected by the task")
    if isinstance(task.verifier, SuiteVerifier):
        for test_file in task.verifier.test_files:
            if path == test_file:
                return Drop(Rule.TEST_EDIT, "replaced by the hidden tests")
            if path.startswith(f"{test_file}/") or test_file.startswith(f"{path}/"):
                return Drop(Rule.TEST_EDIT, "in the way of the hidden tests")
            if test_file.endswith(".py") and path.startswith(f"{test_file.removesuffix('.py')}/"):
                return Drop(Rule.TEST_EDIT, "a package that would be imported in place of a hidden module")
    return None if path in task.gold else _general(task, change, PurePosixPath(path))


def _general(task: TaskSpec, change: FileChange, path: PurePosixPath) -> Drop | None:
    if WORK_FOLDERS.intersection(path.parts):
        return Drop(None, "inside a directory of caches or history")
    if DEPENDENCY_FOLDERS.intersection(path.parts):
        return Drop(Rule.START_UP_FILE, "inside a directory of dependencies")
    if path.name in GIT_FILES:
        return Drop(Rule.ODD_PATH, "configuration of git")
    if path.name.endswith(SUFFIXES):
        return Drop(Rule.START_UP_FILE, "compiled or start-up file")
    if path.name in START_UP_FILES:
        return Drop(Rule.START_UP_FILE, "start-up file of an interpreter or shell")
    if configuration_of(task).intersection(path.parts):
        return Drop(Rule.TEST_CONFIGURATION, "test configuration")
    if path.name in BUILD_FILES:
        return Drop(Rule.TEST_CONFIGURATION, "build configuration")
    if str(path) in _programs(task):
        return Drop(Rule.TEST_CONFIGURATION, "part of the command that runs the hidden tests")
    if _supports_tests(task, path):
        return Drop(None if change.before is None else Rule.TEST_EDIT, "beside the hidden tests, which may import it")
    if change.before is None and _runs_python(task) and new_module(path) in sys.stdlib_module_names | RUNNER_MODULES:
        return Drop(Rule.SHADOW_MODULE, "would hide a module of the standard library or the test runner")
    return None


def _runs_python(task: TaskSpec) -> bool:
    """Whether grading this task starts a Python interpreter beside the checkout."""
    return not isinstance(task.verifier, FrameworkVerifier) or task.verifier.framework in ("unittest", "junit")


def _programs(task: TaskSpec) -> frozenset[str]:
    """Paths of the checkout that the verifier's own arguments name: a script that it runs, a module after `-m`."""
    arguments = getattr(task.verifier, "arguments", ())
    words = [word.removeprefix("./") for word in WORD_ENDS.split(" ".join(arguments)) if word]
    modules = [after.replace(".", "/") for option, after in pairwise(words) if option == "-m"]
    return frozenset([*words, *(f"{name}.py" for name in modules), *(f"{name}/__main__.py" for name in modules)])


def _supports_tests(task: TaskSpec, path: PurePosixPath) -> bool:
    """Whether hidden tests might load `path` as a helper of theirs: one that checks nothing would pass all of them.

    What an agent adds there for itself plays no part in grading. Where the oracle's own work lies among tests (a task
    to write some, a product that ships test tools) they are the product, and filtered.
    """
    if not isinstance(task.verifier, SuiteVerifier) or task.category == "tests":
        return False
    return _among_tests(path) and not any(_among_tests(PurePosixPath(gold)) for gold in task.gold)


def _among_tests(path: PurePosixPath) -> bool:
    return not TEST_FOLDERS.isdisjoint(path.parts[:-1]) or TEST_FILE.fullmatch(path.name) is not None


def configuration_of(task: TaskSpec) -> frozenset[str]:
    """Names of files and folders that configure the test runs of a task; pytest's are never an agent's to change."""
    pytest = ADAPTERS["pytest"].configuration
    return pytest | adapter_of(task.verifier).configuration if isinstance(task.verifier, SuiteVerifier) else pytest


def new_module(path: PurePosixPath) -> str:
    """The Python module that a new file at `path` makes importable from the checkout or a source root; "" for none.

    Only `name.py` and `name/__init__.py` hide another module `name`: a folder without `__init__.py` is found after
    every regular module and package, and files inside a package that exists hide nothing.
    """
    parts = path.parts[1:] if len(path.parts) > 1 and path.parts[0] in SOURCE_ROOTS else path.parts
    if len(parts) == 1 and path.suffix == ".py":
        return path.stem
    return parts[0] if len(parts) == 2 and parts[1] == "__init__.py" else ""
