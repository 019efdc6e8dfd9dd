"""Functions of a package worth changing, and how they are divided between training and held-out tasks."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.packages.build import BuiltPackage
from sandbox.tasks.environments import EnvironmentStore

Split = Literal["train", "held-out"]
HELD_OUT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Target:
    """A function worth mutating."""

    path: str
    name: str
    line: int
    tests: tuple[str, ...]
    """Stable tests that enter it."""


def readable(store: EnvironmentStore, built: BuiltPackage) -> BuiltPackage:
    """The package without functions and tests of files that are not UTF-8: a bundle carries texts, and has no place for them."""
    repo = store.repository(built.environment.digest)
    files = {place.rpartition(":")[0] for place in built.covered} | {test.split("::", 1)[0] for test in built.tests}
    odd = {path for path in files if not _is_text(repo / path)}
    if not odd:
        return built
    tests = {test: seconds for test, seconds in built.tests.items() if test.split("::", 1)[0] not in odd}
    covered = {
        place: tuple(test for test in entered if test in tests)
        for place, entered in built.covered.items()
        if place.rpartition(":")[0] not in odd
    }
    return built.model_copy(update={"tests": tests, "covered": covered})


def _is_text(file: Path) -> bool:
    try:
        file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    except FileNotFoundError:
        return True  # who asks for it says so
    return True


def split_of(package: str, target: Target) -> Split:
    """Which suite a top-level function or class belongs to, for good."""
    digest = hashlib.sha256(f"{package}:{target.path}:{target.name.partition('.')[0]}".encode()).digest()
    return "held-out" if digest[0] < 256 * HELD_OUT_SHARE else "train"


def find_targets(store: EnvironmentStore, built: BuiltPackage) -> list[Target]:
    """Functions of the package (not of its tests) that stable tests enter, in path and line order."""
    repo = store.repository(built.environment.digest)
    test_files = {test_id.split("::", 1)[0] for test_id in built.tests}
    targets: list[Target] = []
    for path in sorted({place.rpartition(":")[0] for place in built.covered}):
        parts = path.split("/")
        if path in test_files or "tests" in parts or parts[-1] == "conftest.py" or not (repo / path).is_file():
            continue
        for qualified, node in functions_in(ast.parse((repo / path).read_bytes())):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            tests = built.covered.get(f"{path}:{first}", ())
            if tests:
                targets.append(Target(path, qualified, node.lineno, tests))
    return targets


def functions_in(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(qualified name, node) of the module's functions and methods; nested functions belong to the outer one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", inner
