"""Debugging tasks made from real packages: one small wrong change in a function that the package's tests cover.

Of each function the first mutant becomes a task that some tests notice, at most half of them, and whose controls hold in
fresh sandboxes. A mutant that no test notices is equivalent as far as anybody can tell, and dropped.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

from sandbox.backends.base import Backend, SandboxError
from sandbox.grading.controls import run_controls
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import TaskInvalid
from sandbox.tasks.generators.drafts import Draft, Reason, Rejected
from sandbox.tasks.generators.instructions import Style
from sandbox.tasks.generators.making import AT_ONCE, Rewrite, Workshop, first_task, harvest, tests_near
from sandbox.tasks.generators.operators import Mutation, Source, is_valid, mutations_of
from sandbox.tasks.generators.yields import Yield, YieldStore
from sandbox.tasks.packages import BuiltPackage, with_backend
from sandbox.tasks.spec import TaskSpec
from sandbox.tasks.store import TaskStore

Split = Literal["train", "held-out"]
HELD_OUT_SHARE = 0.25
MAX_TRIES = 6
"""Mutants tried for one function before it is given up."""
VERSION = 6
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
    split: Split = "train", k: int = 3, full: bool = False, styles: tuple[Style, ...] = ("precise",),
    rewrite: Rewrite | None = None, at_once: int = AT_ONCE, found: Yield | None = None,
) -> AsyncIterator[TaskSpec]:  # fmt: skip
    """Up to `count` tasks whose controls held `k` times, in an order fixed by `seed`; at most one a function.

    The functions of a package are divided between the splits, so no held-out task repeats one of training.
    Tasks made before are taken from the store. What was tried is counted in `found`. Raises SandboxError,
    EnvironmentMissing.
    """
    found = found or Yield(generator="mutation", package=built.name, split=split, seed=seed)
    kept = TaskStore(store.root / "mutations")
    wanted = "-".join((split, str(seed), str(count), str(k), *styles, "full" * full, "said" * (rewrite is not None)))
    name = f"{built.name}-{built.version}-{built.environment.digest[:16]}-{wanted.rstrip('-')}-{VERSION}"
    if kept.has_list(name):
        for task in kept.load_list(name):
            yield task
        return
    shop = Workshop(store, built, backend, found, k=k, full=full, styles=styles, rewrite=rewrite)
    targets = [t for t in find_targets(store, built) if split_of(built.name, t) == split]
    random.Random(f"{built.name} {seed} {split}").shuffle(targets)

    async def one(target: Target) -> TaskSpec | None:
        rng = random.Random(f"{built.name} {seed} {split} {target.path} {target.name}")
        return await first_task(shop, mutants_of(shop, target, rng), rng)

    done: list[TaskSpec] = []
    with found.timed():
        async for made in harvest([functools.partial(one, t) for t in targets], count=count, at_once=at_once):
            kept.save(made)
            done.append(made)
            yield made
    kept.save_list(name, done)
    YieldStore(kept.root).save(name, found)


async def mutants_of(shop: Workshop, target: Target, rng: random.Random) -> AsyncIterator[Draft | Rejected]:
    """Drafts of one function, each another mutation."""
    original = shop.read(target.path)
    expected = tests_near(shop.built, (target.path,), target.tests)
    for mutation in candidates(original.encode(), target, rng)[:MAX_TRIES]:
        mutated = mutation.apply(original.encode())
        if not is_valid(original.encode(), mutated):
            yield Rejected(Reason.INVALID)
            continue
        yield Draft(
            source="mutation", category="debug", operator=mutation.operator, broken={target.path: mutated.decode()},
            gold={target.path: original}, expected=expected, functions=(target.name,),
            family=f"{shop.built.name}:{target.path}:{target.name}",
        )  # fmt: skip


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


async def revalidate(store: EnvironmentStore, task: TaskSpec, *, backend: Backend, k: int = 1) -> None:
    """Run a stored task's controls again here. Raises TaskInvalid with the cause, SandboxError."""
    controls = await run_controls(backend=backend, environments=store, task=task, k=k)
    if not controls.ok:
        if not controls.graded:
            raise SandboxError(controls.reason)
        raise TaskInvalid(f"task {task.id} fails its controls: {controls.reason}", remedy="It cannot join a suite")
