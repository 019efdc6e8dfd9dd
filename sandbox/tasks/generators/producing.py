"""The generators of tasks from packages by name, and what they share: order, splits, the store, and what was spent."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Literal, get_args

from sandbox.backends.base import Backend
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.errors import TaskError
from sandbox.tasks.generators.combination import combined
from sandbox.tasks.generators.deletion import Package, deletions, find_features
from sandbox.tasks.generators.instructions import Style
from sandbox.tasks.generators.making import AT_ONCE, Rewrite, Workshop, first_task, harvest
from sandbox.tasks.generators.pruning import function_text, functions_of
from sandbox.tasks.generators.targets import Split, Target, find_targets, mutants_of, near, split_of
from sandbox.tasks.generators.yields import Yield, YieldStore
from sandbox.tasks.packages import BuiltPackage, with_backend
from sandbox.tasks.spec import TaskSpec
from sandbox.tasks.store import TaskStore

GeneratorName = Literal["mutation", "distance", "combination", "deletion"]
GENERATORS: tuple[GeneratorName, ...] = get_args(GeneratorName)
Job = Callable[[], Awaitable[TaskSpec | None]]
VERSION = 7
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
    found: Yield | None = None,
) -> AsyncIterator[TaskSpec]:  # fmt: skip
    """Up to `count` tasks whose controls held `k` times, in an order fixed by `seed`; at most one a place.

    The functions of a package are divided between the splits, the same way for every generator, so no held-out task
    repeats one of training. Tasks made before are taken from the store. What was tried is counted in `found`.
    Raises SandboxError, EnvironmentMissing.
    """
    found = found if found is not None else Yield(generator=generator, package=built.name)
    found.generator, found.package, found.split, found.seed = generator, built.name, split, seed
    kept = TaskStore(store.root / "mutations")
    wanted = (generator, split, seed, count, k, *styles, "full" * full, "said" * (rewrite is not None))
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
    shop = Workshop(store, built, backend, found, k=k, full=full, styles=styles, rewrite=rewrite)
    done: list[TaskSpec] = []
    with found.timed():
        async for made in harvest(jobs_of(generator, shop, seed, split), count=count, at_once=at_once):
            kept.save(made)
            done.append(made)
            yield made
    # Those that were made ahead and not wanted in the end count as tried only.
    found.kept = len(done)
    kept.save_list(name, done)
    YieldStore(kept.root).save(name, found)


def jobs_of(generator: GeneratorName, shop: Workshop, seed: int, split: Split) -> list[Job]:
    """One job for each place that may give a task, in seeded order. Raises TaskError for an unknown generator."""
    makers = {
        "mutation": _mutation_jobs, "distance": _distance_jobs, "combination": _combination_jobs,
        "deletion": _deletion_jobs,
    }  # fmt: skip
    if generator not in makers:
        raise TaskError(f"no generator {generator!r}", remedy=f"There are {', '.join(GENERATORS)}")
    return makers[generator](shop, f"{shop.built.name} {seed} {split}", split)


def _targets(shop: Workshop, seed: str, split: Split) -> list[Target]:
    targets = [t for t in find_targets(shop.store, shop.built) if split_of(shop.built.name, t) == split]
    random.Random(seed).shuffle(targets)
    return targets


def _mutation_jobs(shop: Workshop, seed: str, split: Split) -> list[Job]:
    return [functools.partial(_mutated, shop, target, seed, False) for target in _targets(shop, seed, split)]


def _distance_jobs(shop: Workshop, seed: str, split: Split) -> list[Job]:
    far = [target for target in _targets(shop, seed, split) if _has_distant_test(shop, target)]
    return [functools.partial(_mutated, shop, target, seed, True) for target in far]


async def _mutated(shop: Workshop, target: Target, seed: str, distant: bool) -> TaskSpec | None:
    rng = random.Random(f"{seed} {target.path} {target.name}")
    return await first_task(shop, mutants_of(shop, target, rng, distant=distant), rng)


def _has_distant_test(shop: Workshop, target: Target) -> bool:
    words = near(shop.read(target.path), target)
    for path, functions in functions_of(target.tests).items():
        text = shop.read(path)
        for function in functions:
            body = function_text(text, function)
            if body is not None and not any(word in body for word in words):
                return True
    return False


def _combination_jobs(shop: Workshop, seed: str, split: Split) -> list[Job]:
    """Pairs of functions, those in different files first."""
    targets = _targets(shop, seed, split)
    pairs: Sequence[tuple[Target, Target]] = list(itertools.pairwise(targets))[::2]
    pairs = sorted(pairs, key=lambda pair: pair[0].path == pair[1].path)

    async def one(pair: tuple[Target, Target]) -> TaskSpec | None:
        rng = random.Random(f"{seed} {pair}")
        return await first_task(shop, combined(shop, pair, rng), rng)

    return [functools.partial(one, pair) for pair in pairs]


def _deletion_jobs(shop: Workshop, seed: str, split: Split) -> list[Job]:
    package = Package.of(shop)
    features = [
        feature
        for feature in find_features(shop, package)
        if split_of(shop.built.name, Target(feature.path, feature.name, 0, ())) == split
    ]
    random.Random(seed).shuffle(features)
    return [
        functools.partial(first_task, shop, deletions(shop, feature, package), random.Random(f"{seed} {feature.name}"))
        for feature in features
    ]
