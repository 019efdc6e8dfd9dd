"""Registry of package-based task generators, and what they share: order, splits, the store and cost accounting."""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Literal, get_args

from sandbox.backends.base import Backend
from sandbox.errors import TaskError
from sandbox.generators.analysis.package import Function, Package
from sandbox.generators.analysis.reachability import Reachability
from sandbox.generators.analysis.targets import Split, Target, find_targets, readable, split_of
from sandbox.generators.building.builder import AT_ONCE, CANDIDATES, Rewrite, TaskBuilder, first_task, harvest
from sandbox.generators.building.drafts import Reason, Rejected
from sandbox.generators.building.instructions import Style
from sandbox.generators.building.screening import Candidate, tasks_of
from sandbox.generators.building.verifiers import Work, verified_task
from sandbox.generators.building.yields import Yield, YieldStore
from sandbox.generators.deletion.deletion import deletions
from sandbox.generators.deletion.features import find_features
from sandbox.generators.mining import is_pair, mined
from sandbox.generators.mutation.combination import combined
from sandbox.generators.mutation.mutants import mutants_of
from sandbox.generators.refactoring.migration import migrate, refactorable
from sandbox.generators.refactoring.moving import move
from sandbox.generators.refactoring.renaming import rename
from sandbox.generators.writing import write_examples, write_tests
from sandbox.packages.build import BuiltPackage, with_backend
from sandbox.repositories.commits import Commit
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from sandbox.tasks.store import TaskStore

GeneratorName = Literal[
    "mutation", "distance", "combination", "deletion", "mining", "rename", "move", "migration", "tests", "examples"
]
GENERATORS: tuple[GeneratorName, ...] = get_args(GeneratorName)
Job = Callable[[], Awaitable[Sequence[TaskSpec]]]
Refactoring = Callable[[TaskBuilder, Package, Target, Function, random.Random], Work | None]
Writing = Callable[[TaskBuilder, Target, random.Random], Awaitable[Work | Rejected]]
REFACTORINGS: dict[str, Refactoring] = {"rename": rename, "move": move, "migration": migrate}
VERSION = 12
"""Changed whenever the same seed would give other tasks."""


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
    store: EnvironmentStore, built: BuiltPackage, *, backend: Backend, generator: GeneratorName = "mutation",
    count: int = 8, seed: int = 0, split: Split = "train", k: int = 3, full: bool = False,
    styles: tuple[Style, ...] = ("precise",), rewrite: Rewrite | None = None, at_once: int = AT_ONCE,
    history: tuple[Commit, ...] = (), found: Yield | None = None,
) -> AsyncIterator[TaskSpec]:  # fmt: skip
    """Up to `count` tasks whose controls held `k` times, in an order fixed by `seed`; at most one a candidate.

    The functions of a package are divided between the splits, the same way for every generator, so no held-out task
    repeats one of training. Tasks made before are taken from the store. What was tried is counted in `found`.
    Raises SandboxError, EnvironmentMissing.
    """
    found = found if found is not None else Yield(generator=generator, package=built.name)
    found.generator, found.package, found.split, found.seed = generator, built.name, split, seed
    kept = TaskStore(store.root / "mutations")
    wanted = (
        generator,
        split,
        seed,
        count,
        k,
        *styles,
        "full" * full,
        "said" * (rewrite is not None),
        *(c.id for c in history[:1]),
    )
    name = "-".join(
        str(part) for part in (built.name, built.version, built.environment.digest[:16], *wanted, VERSION) if part != ""
    )
    if kept.has_list(name):
        before = YieldStore(kept.root).load(name)
        for field in Yield.model_fields if before is not None else ():
            setattr(found, field, getattr(before, field))
        for task in kept.load_list(name):
            yield task
        return
    slots = asyncio.Semaphore(at_once)
    builder = TaskBuilder(
        store, readable(store, built), backend, found, k=k, full=full, styles=styles, rewrite=rewrite, history=history,
        slots=slots, candidates=min(CANDIDATES, count),
    )  # fmt: skip
    done: list[TaskSpec] = []
    with found.timed():
        jobs = jobs_of(generator, builder, seed, split)
        each = builder.candidates if generator in ("mutation", "distance", "mining") else 1
        async for made in harvest(jobs, count=count, at_once=at_once, each=each):
            kept.save(made)
            done.append(made)
            yield made
    # Those that were made ahead and not wanted in the end count as tried only.
    found.kept = len(done)
    kept.save_list(name, done)
    YieldStore(kept.root).save(name, found)


def jobs_of(generator: GeneratorName, builder: TaskBuilder, seed: int, split: Split) -> list[Job]:
    """One job for each candidate, in seeded order. Raises TaskError for an unknown generator."""
    makers: dict[str, Callable[[TaskBuilder, str, Split], list[Job]]] = {
        "mutation": _mutation_jobs, "distance": _distance_jobs, "combination": _combination_jobs,
        "deletion": _deletion_jobs, "mining": _mining_jobs, "tests": _tests_jobs, "examples": _examples_jobs,
        **{name: functools.partial(_refactoring_jobs, how=how) for name, how in REFACTORINGS.items()},
    }  # fmt: skip
    if generator not in makers:
        raise TaskError(f"no generator {generator!r}", remedy=f"There are {', '.join(GENERATORS)}")
    return makers[generator](builder, f"{builder.built.name} {seed} {split}", split)


def _targets(builder: TaskBuilder, seed: str, split: Split) -> list[Target]:
    targets = [t for t in find_targets(builder.store, builder.built) if split_of(builder.built.name, t) == split]
    random.Random(seed).shuffle(targets)
    return targets


def _mutation_jobs(builder: TaskBuilder, seed: str, split: Split) -> list[Job]:
    return _mutated(builder, [(target, ()) for target in _targets(builder, seed, split)], seed)


def _distance_jobs(builder: TaskBuilder, seed: str, split: Split) -> list[Job]:
    targets = _targets(builder, seed, split)
    reach = Reachability(Package.of(builder), builder.built.tests)
    far = [(target, tests) for target in targets if (tests := reach.distant(target))]
    builder.found.pass_over(Reason.NEAR, len(targets) - len(far))
    return _mutated(builder, far, seed)


def _mutated(builder: TaskBuilder, targets: Sequence[tuple[Target, tuple[str, ...]]], seed: str) -> list[Job]:
    """Mutation jobs. One of the tests listed with a function must show the bug; if none are listed, any test may."""

    async def some(chosen: Sequence[tuple[Target, tuple[str, ...]]]) -> list[TaskSpec]:
        candidates = []
        for target, tests in chosen:
            rng = random.Random(f"{seed} {target.path} {target.name}")
            candidates.append(Candidate(mutants_of(builder, target, rng, distant=tests), rng))
        return await tasks_of(builder, candidates)

    return [
        functools.partial(some, targets[at : at + builder.candidates])
        for at in range(0, len(targets), builder.candidates)
    ]


def _mining_jobs(builder: TaskBuilder, seed: str, split: Split) -> list[Job]:
    """The newest commits first: their code has changed least since. Raises TaskError without a history."""
    if not builder.history:
        raise TaskError(
            f"{builder.built.name}: mining needs the commits of a git repository",
            remedy="Choose an environment that was made from a git repository with more than one commit",
        )

    async def some(chosen: Sequence[Commit]) -> list[TaskSpec]:
        return await tasks_of(
            builder, [Candidate(mined(builder, one, split), random.Random(f"{seed} {one.id}")) for one in chosen]
        )

    pairs = [commit for commit in builder.history if is_pair(commit)]
    return [
        functools.partial(some, pairs[at : at + builder.candidates]) for at in range(0, len(pairs), builder.candidates)
    ]


def _refactoring_jobs(builder: TaskBuilder, seed: str, split: Split, *, how: Refactoring) -> list[Job]:
    package = Package.of(builder)

    async def one(target: Target, node: Function) -> list[TaskSpec]:
        rng = random.Random(f"{seed} {target.path} {target.name}")
        work = how(builder, package, target, node, rng)
        if work is None:
            builder.found.pass_over(Reason.UNSUITED)
            return []
        return await _verified(builder, work, rng)

    targets = _targets(builder, seed, split)
    suited = list(refactorable(package, targets))
    builder.found.pass_over(Reason.UNSUITED, len(targets) - len(suited))
    return [functools.partial(one, target, node) for target, node in suited]


def _tests_jobs(builder: TaskBuilder, seed: str, split: Split) -> list[Job]:
    return _writing_jobs(builder, seed, split, write_tests)


def _examples_jobs(builder: TaskBuilder, seed: str, split: Split) -> list[Job]:
    return _writing_jobs(builder, seed, split, write_examples)


def _writing_jobs(builder: TaskBuilder, seed: str, split: Split, how: Writing) -> list[Job]:
    async def one(target: Target) -> list[TaskSpec]:
        rng = random.Random(f"{seed} {target.path} {target.name}")
        return await _verified(builder, await how(builder, target, rng), rng)

    return [functools.partial(one, target) for target in _targets(builder, seed, split)]


async def _verified(builder: TaskBuilder, work: Work | Rejected, rng: random.Random) -> list[TaskSpec]:
    made = work if isinstance(work, Rejected) else await verified_task(builder, work, rng)
    if isinstance(made, Rejected):
        builder.found.reject("", made)
        return []
    builder.found.keep("")
    return [made]


def _combination_jobs(builder: TaskBuilder, seed: str, split: Split) -> list[Job]:
    """Pairs of functions, those in different files first."""
    targets = _targets(builder, seed, split)
    pairs: Sequence[tuple[Target, Target]] = list(itertools.pairwise(targets))[::2]
    pairs = sorted(pairs, key=lambda pair: pair[0].path == pair[1].path)

    async def one(pair: tuple[Target, Target]) -> list[TaskSpec]:
        rng = random.Random(f"{seed} {pair}")
        return await first_task(builder, combined(builder, pair, rng), rng)

    return [functools.partial(one, pair) for pair in pairs]


def _deletion_jobs(builder: TaskBuilder, seed: str, split: Split) -> list[Job]:
    package = Package.of(builder)
    features = [
        feature
        for feature in find_features(builder, package)
        if split_of(builder.built.name, Target(feature.path, feature.name, 0, ())) == split
    ]
    random.Random(seed).shuffle(features)
    return [
        functools.partial(
            first_task, builder, deletions(builder, feature, package), random.Random(f"{seed} {feature.name}")
        )
        for feature in features
    ]
