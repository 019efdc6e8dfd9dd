"""The verifiers that run a hidden test suite: pristine files, canaries among them, a report over a private descriptor."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sandbox.backends.base import Backend, FileChange, Limits, Sandbox
from sandbox.grading.adapters import adapter_of, language_of
from sandbox.grading.adapters.base import Adapter, Order, TestRun, files_of, wall_seconds
from sandbox.grading.apply import apply, write_tests
from sandbox.grading.canaries.base import Twin
from sandbox.grading.canaries.planting import Planted, plant
from sandbox.grading.canaries.pool import CanaryPool, PoolStore, make_pool
from sandbox.grading.judging import Judgement, judge_run
from sandbox.grading.patch import from_files
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, PytestVerifier, SuiteVerifier, TaskSpec

SECRET: random.Random = random.SystemRandom()
"""Where the draws of a grading come from; nothing of it enters a sandbox."""
CANARY_FUNCTIONS = (4, 7)
"""Least and most tests that get twins in one grading (of those that can have any).

Work that reads the test files sees the clusters, not which member is real; it may guess. Each test with twins halves
the chance of a guess, at least.
"""
CANARY_SECONDS = 0.3
"""Run time of the twins of one grading, beyond the first."""
POOL_TIME = 4.0
"""A pool is tried in this many times the task's own limit: it runs whole files and many twins."""


async def run_suite(
    sandbox: Sandbox,
    task: TaskSpec,
    verifier: SuiteVerifier,
    pool: CanaryPool,
    *,
    environments: EnvironmentStore,
    draw: random.Random = SECRET,
) -> Judgement:
    """Run the expected tests in `sandbox`, whose checkout holds the work. Raises SandboxError, PathError."""
    expected = (*verifier.fail_to_pass, *verifier.pass_to_pass)
    planted = dressed(verifier, pool, draw)
    await write_tests(sandbox, planted.files)
    ids = planted.shuffled(draw)
    run = await collect(sandbox, adapter_of(verifier), order_of(task, verifier, environments, ids))
    return judge_run(expected, planted, run)


def dressed(verifier: SuiteVerifier, pool: CanaryPool, draw: random.Random) -> Planted:
    """The hidden files with canaries of this grading."""
    expected = (*verifier.fail_to_pass, *verifier.pass_to_pass)
    language = language_of(verifier)
    if language is None or not pool.twins:
        files = {path: text.encode() for path, text in verifier.test_files.items()}
        return Planted(files, {i: i for i in expected}, frozenset(), frozenset(), ())
    twins = draw_twins(pool, verifier, draw)
    return plant(language, verifier.test_files, expected, twins, disguise=pool.disguise, draw=draw)


def draw_twins(pool: CanaryPool, verifier: SuiteVerifier, draw: random.Random) -> list[Twin]:
    """Twins of a few tests, those that must start to pass first: their names the agent cannot have seen."""
    language = language_of(verifier)
    assert language is not None
    new = {(p.where, p.names) for p in map(language.parse, verifier.fail_to_pass)}
    groups: dict[tuple[str, tuple[str, ...]], list[Twin]] = {}
    for twin in pool.twins:
        groups.setdefault((twin.path, twin.names), []).append(twin)
    keys = sorted(groups, key=lambda key: ((language.where(key[0]), key[1]) not in new, draw.random()))
    wanted = draw.randint(*CANARY_FUNCTIONS)
    chosen: list[Twin] = []
    seconds = 0.0
    for key in keys[:wanted]:
        group = groups[key]
        for twin in draw.sample(group, draw.randint(1, len(group))):
            if chosen and seconds + twin.seconds > CANARY_SECONDS:
                break
            chosen.append(twin)
            seconds += twin.seconds
    return chosen


async def canary_pool(
    task: TaskSpec, verifier: SuiteVerifier, *, backend: Backend, environments: EnvironmentStore, limits: Limits
) -> CanaryPool:
    """The task's canaries, found out now with the oracle's work if nobody did before.

    Raises SandboxError, TaskError: without its canaries a task is not graded.
    """
    store = PoolStore(environments.root)
    known = store.load(task.bundle_hash)
    if known is not None:
        return known
    language = language_of(verifier)
    if language is None:
        pool = CanaryPool(bundle_hash=task.bundle_hash, note="canaries cannot be planted in tests of this framework")
        store.save(pool)
        return pool
    spec = environments.spec(task.environment)
    gold = from_files(task, task.gold).changes

    async def trial(planted: Planted, everything: bool) -> TestRun:
        async with await backend.start(spec, limits=limits) as sandbox:
            ids = None if everything else planted.shuffled(SECRET)
            return await _try(sandbox, task, verifier, environments, gold, planted, ids)

    pool = await make_pool(language, verifier, task.bundle_hash, trial, draw=SECRET)
    store.save(pool)
    return pool


async def _try(
    sandbox: Sandbox,
    task: TaskSpec,
    verifier: SuiteVerifier,
    environments: EnvironmentStore,
    gold: Sequence[FileChange],
    planted: Planted,
    ids: tuple[str, ...] | None,
) -> TestRun:
    await apply(sandbox, gold)
    await write_tests(sandbox, planted.files)
    order = order_of(task, verifier, environments, ids, files=files_of(tuple(planted.ids.values())), scale=POOL_TIME)
    return await collect(sandbox, adapter_of(verifier), order)


def order_of(
    task: TaskSpec,
    verifier: SuiteVerifier,
    environments: EnvironmentStore,
    ids: tuple[str, ...] | None,
    *,
    files: tuple[str, ...] = (),
    scale: float = 1.0,
) -> Order:
    """What the adapter is to run for a task. Raises EnvironmentMissing."""
    python = "python3"
    if isinstance(task.environment, BuiltEnvironment):
        python = environments.manifest(task.environment.digest).python
    pytest = isinstance(verifier, PytestVerifier)
    return Order(
        files=files_of(ids) if ids is not None else files,
        ids=ids,
        seconds=verifier.timeout_seconds * scale,
        python=python,
        arguments=verifier.pytest_args if isinstance(verifier, PytestVerifier) else getattr(verifier, "arguments", ()),
        conftest=pytest and any(path.rpartition("/")[2] == "conftest.py" for path in verifier.test_files),
        report=getattr(verifier, "report", ""),
    )


async def collect(sandbox: Sandbox, adapter: Adapter, order: Order) -> TestRun:
    """Run what is ordered and read what the run reports. Raises SandboxError."""
    invocation = adapter.invoke(order)
    result = await sandbox.exec(
        invocation.command, stdin=invocation.stdin, timeout=wall_seconds(order), private_result=True, keep_state=False
    )
    return adapter.read(order, invocation, result)
