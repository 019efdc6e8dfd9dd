"""Debugging tasks made from real packages: one small wrong change in a function that the package's tests cover.

A mutant becomes a task only if some tests fail and others still pass, and if its controls hold in fresh sandboxes.
The failing tests are taken out of the checkout that the agent gets; the instruction is an issue report made from
what one of them observed, never from the change.
"""

from __future__ import annotations

import ast
import hashlib
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

from sandbox.backends.base import Backend, SandboxError
from sandbox.grading.adapters.base import Order, files_of
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.controls import run_controls
from sandbox.grading.flaky import without_tests
from sandbox.grading.suite import collect
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import TaskInvalid
from sandbox.tasks.generators.issue import issue_report
from sandbox.tasks.generators.operators import Mutation, Source, is_valid, mutations_of
from sandbox.tasks.generators.pruning import functions_of, remove_functions
from sandbox.tasks.packages import BUILD_LIMITS, BuiltPackage, with_backend
from sandbox.tasks.spec import BuiltEnvironment, PytestVerifier, TaskSpec
from sandbox.tasks.store import TaskStore

Split = Literal["train", "held-out"]
HELD_OUT_SHARE = 0.25
MAX_FAILING_SHARE = 0.5
"""A change that fails more of the tests than this breaks the package at import or at its root: not a puzzle."""
MAX_TRIES = 6
"""Mutants tried for one function before it is given up."""
MAX_TEST_SECONDS = 3.0
"""Tests of one task: those nearest to the changed function, up to this much run time."""
VERSION = 5
"""Changed whenever the same seed would give other tasks."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function worth mutating."""

    path: str
    name: str
    line: int
    tests: tuple[str, ...]
    """Stable tests that enter it."""


def mutation_tasks(
    store: EnvironmentStore, built: BuiltPackage, *, count: int = 8, seed: int = 0, split: Split = "train", k: int = 3
) -> Iterator[TaskSpec]:
    """`generate_tasks` with a backend of its own, for callers outside an event loop."""

    async def work(backend: Backend) -> list[TaskSpec]:
        return [
            t async for t in generate_tasks(store, built, backend=backend, count=count, seed=seed, split=split, k=k)
        ]

    yield from with_backend(work)


async def generate_tasks(
    store: EnvironmentStore, built: BuiltPackage, *, backend: Backend, count: int = 8, seed: int = 0,
    split: Split = "train", k: int = 3,
) -> AsyncIterator[TaskSpec]:  # fmt: skip
    """Up to `count` tasks whose controls held `k` times, in an order fixed by `seed`; at most one a function.

    The functions of a package are divided between the splits, so no held-out task repeats one of training.
    Tasks made before are taken from the store. Raises SandboxError, EnvironmentMissing.
    """
    kept = TaskStore(store.root / "mutations")
    name = f"{built.name}-{built.version}-{built.environment.digest[:16]}-{split}-{seed}-{count}-{k}-{VERSION}"
    if kept.has_list(name):
        for task in kept.load_list(name):
            yield task
        return
    rng = random.Random(f"{built.name} {seed} {split}")
    targets = [t for t in find_targets(store, built) if split_of(built.name, t) == split]
    rng.shuffle(targets)
    done: list[TaskSpec] = []
    for target in targets:
        if len(done) == count:
            break
        made = await _task_of(store, built, backend, target, rng)
        if made is None:
            continue
        controls = await run_controls(backend=backend, environments=store, task=made, k=k)
        if controls.flaky and (steady := without_tests(made, controls.flaky)) is not None:
            made = steady
            controls = await run_controls(backend=backend, environments=store, task=made, k=k)
        if not controls.graded:
            raise SandboxError(controls.reason)
        if controls.ok:
            kept.save(made)
            done.append(made)
            yield made
    kept.save_list(name, done)


def split_of(package: str, target: Target) -> Split:
    """Which suite a function belongs to, for good."""
    digest = hashlib.sha256(f"{package}:{target.path}:{target.name}".encode()).digest()
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
    """Mutations of the target's function that parse and differ, shuffled, with operators taking turns."""
    parsed = Source(source)
    node = next(n for name, n in _functions(parsed.tree) if name == target.name and n.lineno == target.line)
    by_operator: dict[str, list[Mutation]] = {}
    for mutation in mutations_of(parsed, node):
        if is_valid(source, mutation.apply(source)):
            by_operator.setdefault(mutation.operator, []).append(mutation)
    queues = list(by_operator.values())
    rng.shuffle(queues)
    for queue in queues:
        rng.shuffle(queue)
    turns = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(turns) for queue in queues if turn < len(queue)]


def tests_near(built: BuiltPackage, target: Target) -> tuple[str, ...]:
    """Stable tests that a task on `target` expects: those that enter it, then others that enter its file."""
    same_file = {t for place, ids in built.covered.items() if place.rpartition(":")[0] == target.path for t in ids}
    rest = sorted(same_file - set(target.tests), key=lambda t: hashlib.sha256(t.encode()).digest())
    chosen: list[str] = []
    seconds = 0.0
    for test_id in (*target.tests, *rest):
        seconds += built.tests[test_id]
        if seconds > MAX_TEST_SECONDS and chosen:
            break
        chosen.append(test_id)
    return tuple(sorted(chosen))


async def _task_of(
    store: EnvironmentStore, built: BuiltPackage, backend: Backend, target: Target, rng: random.Random
) -> TaskSpec | None:
    """A task from the first mutant of `target` that some of its tests notice, or None."""
    repo = store.repository(built.environment.digest)
    original = (repo / target.path).read_bytes()
    expected = tests_near(built, target)
    manifest = store.manifest(built.environment.digest)
    conftests = sorted(p.relative_to(repo).as_posix() for p in repo.rglob("conftest.py"))
    # Wrong code may loop for ever: give it a few times what the right code needs.
    seconds = 3.0 + 5.0 * sum(built.tests[t] for t in expected)
    for mutation in candidates(original, target, rng)[:MAX_TRIES]:
        mutated = mutation.apply(original)
        async with await backend.start(store.spec(built.environment), limits=BUILD_LIMITS) as sandbox:
            await sandbox.write(target.path, mutated)
            order = Order(
                files=files_of(expected), ids=expected, python=manifest.python, conftest=bool(conftests),
                seconds=seconds, message_chars=4000,
            )  # fmt: skip
            outcome = await collect(sandbox, PytestAdapter(), order)
        if not outcome.finished:
            continue
        failing = [t for t in expected if outcome.status(t) in ("failed", "error")]
        passing = [t for t in expected if outcome.status(t) == "passed"]
        if not failing or not passing or len(failing) > MAX_FAILING_SHARE * len(expected):
            continue
        if len(failing) + len(passing) != len(expected):
            continue
        report = issue_report(
            built.name, {t: outcome.cases[t].message for t in failing}, lambda path: (repo / path).read_text()
        )
        if report is None:
            continue
        pristine = {path: (repo / path).read_text() for path in sorted({t.split("::", 1)[0] for t in expected})}
        pruned = {
            path: remove_functions(pristine[path], functions) for path, functions in functions_of(failing).items()
        }
        digest = hashlib.sha256(mutated + target.path.encode()).hexdigest()[:10]
        return TaskSpec(
            id=f"mutation-{built.name}-{digest}".lower(),
            source="mutation",
            category="debug",
            instruction=report,
            environment=BuiltEnvironment(
                digest=built.environment.digest, overrides={target.path: mutated.decode(), **pruned}
            ),
            verifier=PytestVerifier(
                test_files={**pristine, **{path: (repo / path).read_text() for path in conftests}},
                fail_to_pass=tuple(failing),
                pass_to_pass=tuple(passing),
                timeout_seconds=seconds,
            ),
            gold={target.path: original.decode()},
            protected=tuple(sorted({*pristine, *conftests})),
            family=f"{built.name}:{target.path}:{target.name}",
        )
    return None


async def revalidate(store: EnvironmentStore, task: TaskSpec, *, backend: Backend, k: int = 1) -> None:
    """Run a stored task's controls again here. Raises TaskInvalid with the cause, SandboxError."""
    controls = await run_controls(backend=backend, environments=store, task=task, k=k)
    if not controls.ok:
        if not controls.graded:
            raise SandboxError(controls.reason)
        raise TaskInvalid(f"task {task.id} fails its controls: {controls.reason}", remedy="It cannot join a suite")
