"""Functions of a package worth changing, and small wrong changes of each.

Of each function the first mutant becomes a task that some tests notice, at most half of them, and whose controls hold in
fresh sandboxes. A mutant that no test notices is equivalent as far as anybody can tell, and dropped.
"""

from __future__ import annotations

import ast
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.generators.drafts import Draft, Reason, Rejected
from sandbox.tasks.generators.making import TaskBuilder, tests_elsewhere, tests_near
from sandbox.tasks.generators.operators import Mutation, Source, is_valid, mutations_of
from sandbox.tasks.packages import BuiltPackage

Split = Literal["train", "held-out"]
HELD_OUT_SHARE = 0.25
MAX_TRIES = 6
"""Mutants tried for one function before it is given up."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function worth mutating."""

    path: str
    name: str
    line: int
    tests: tuple[str, ...]
    """Stable tests that enter it."""


def mutants_of(
    shop: TaskBuilder, target: Target, rng: random.Random, *, distant: tuple[str, ...] = ()
) -> Iterator[Draft | Rejected]:
    """Drafts of one function, each another mutation; `distant`: tests of which one must show it (`reach.py`)."""
    original = shop.read(target.path)
    tests = (*distant, *(test for test in target.tests if test not in distant))
    expected = tests_near(shop.built, (target.path,), tests)
    if distant:
        # What much of a file rests on fails most tests near it: those of other files say whether the package still stands.
        expected = tuple(sorted({*expected, *tests_elsewhere(shop.built, expected)}))
    for mutation in candidates(original.encode(), target, rng)[:MAX_TRIES]:
        mutated = mutation.apply(original.encode())
        if not is_valid(original.encode(), mutated):
            yield Rejected(Reason.INVALID)
            continue
        yield Draft(
            source="distance" if distant else "mutation", category="debug", operator=mutation.operator,
            broken={target.path: mutated.decode()}, gold={target.path: original}, expected=expected, functions=(target.name,),
            family=f"{shop.built.name}:{target.path}:{target.name}", shown=distant,
        )  # fmt: skip


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
        for qualified, node in _functions(ast.parse((repo / path).read_bytes())):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            tests = built.covered.get(f"{path}:{first}", ())
            if tests:
                targets.append(Target(path, qualified, node.lineno, tests))
    return targets


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(qualified name, node) of the module's functions and methods; nested functions belong to the outer one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def candidates(source: bytes, target: Target, rng: random.Random) -> list[Mutation]:
    """Mutations of the target's function, shuffled, with operators taking turns. They may not all mean something."""
    parsed = Source(source)
    node = next(n for name, n in _functions(parsed.tree) if name == target.name and n.lineno == target.line)
    by_operator: dict[str, list[Mutation]] = {}
    for mutation in mutations_of(parsed, node):
        by_operator.setdefault(mutation.operator, []).append(mutation)
    queues = list(by_operator.values())
    rng.shuffle(queues)
    for queue in queues:
        rng.shuffle(queue)
    turns = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(turns) for queue in queues if turn < len(queue)]
