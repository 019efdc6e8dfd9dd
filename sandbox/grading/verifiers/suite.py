"""The verifiers that run a hidden test suite: pristine files, canaries among them, a report over a private descriptor."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial

from sandbox.backends.base import Backend, FileChange, Limits, Sandbox
from sandbox.grading.adapters import adapter_of
from sandbox.grading.adapters.base import Adapter, Order, TestRun, files_of, own_seconds, read_report, wall_seconds
from sandbox.grading.canaries.base import Language, SiblingTest
from sandbox.grading.canaries.insertion import PreparedSuite, insert_canaries
from sandbox.grading.canaries.python import PythonTests
from sandbox.grading.observations.baits import bait_siblings
from sandbox.grading.observations.brace_tests.braces import Rewriter
from sandbox.grading.observations.brace_tests.javascript import JavaScriptRewriter
from sandbox.grading.observations.hiding import first_suite, kept_files, untitled
from sandbox.grading.observations.plan import (
    Bare,
    Plan,
    Trial,
    adapted,
    judged,
    make_plan,
    missed,
    observed_verifier,
)
from sandbox.grading.observations.python_tests.isolation import again
from sandbox.grading.observations.rewriting import judged_below, make_brace_plan, site_ids
from sandbox.grading.patches.apply import apply, write_tests
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verifiers.admission import require_admissible
from sandbox.grading.verifiers.canary_pool import (
    MAX_FUNCTIONS,
    CanaryPool,
    OracleFails,
    PoolStore,
    make_pool,
    without_sibling,
)
from sandbox.grading.verifiers.entropy import task_entropy, unasked
from sandbox.grading.verifiers.judging import Judgement, judge_both, judge_compiled, judge_difference, judge_run
from sandbox.grading.verifiers.languages import language_of, rewriter_of
from sandbox.grading.verifiers.plan_store import PlanStore
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, PytestVerifier, SuiteVerifier, TaskSpec

SECRET: random.Random = random.SystemRandom()
"""Where the draws of a grading come from; nothing of it enters a sandbox."""
CANARY_FUNCTIONS = (4, 7)
"""Least and most tests that get siblings in one grading (of those that can have any).

Work that reads the test files sees the clusters, not which member is real; it may guess. Each test with siblings halves
the chance of a guess, at least.
"""
CANARY_SECONDS = 0.3
"""Run time of the siblings of one grading, beyond the first."""
MIN_SECONDS = 0.5
"""A run of tests gets this much where those before it left nothing: it then ends as out of time."""
POOL_TIME = 4.0
"""A pool is tried in this many times the task's own limit: it runs whole files and many siblings."""


Fresh = Callable[[], AbstractAsyncContextManager[Sandbox]]
"""Starts another sandbox of the same environment, with the work in its checkout. Raises what a sandbox that does not start
raises."""


async def run_suite(
    fresh: Fresh,
    task: TaskSpec,
    verifier: SuiteVerifier,
    pool: CanaryPool,
    *,
    environments: EnvironmentStore,
    draw: random.Random = SECRET,
) -> Judgement:
    """Run the expected tests on the work, each run in a fresh sandbox: the work can leave nothing in the first of two for the
    second, be it notes, settings of a compiler, caches or processes. The runs share the limit of the tests, and one ends with
    its sandbox before the next starts.

    Raises SandboxError, PathError, and what `fresh` raises.
    """
    plan, spent = pool.plan, Spent()
    original = verifier
    if plan is not None:
        verifier = observed_verifier(verifier, plan)
    expected = (*verifier.fail_to_pass, *verifier.pass_to_pass)
    prepared = prepare_suite(verifier, pool, draw)
    order = order_of(task, verifier, environments, prepared.shuffled(draw))
    adapter = adapter_of(verifier)
    if plan is not None and plan.blank:
        judgement = await _run_apart(fresh, adapter, order, original, prepared, plan, pool, draw)
    else:
        bare = await _collect_bare(fresh, adapter, order, verifier, plan, pool, spent, draw)
        async with fresh() as sandbox:  # judged in there too, which the deadline of the work covers
            run = await _collect_prepared(sandbox, adapter, order, prepared, plan, rewriter_of(verifier), spent)
            judgement = judge_run(expected, prepared, run)
            if plan is not None and bare is not None and judgement.outcome is Cause.ALL_PASSED:
                found = await asyncio.to_thread(adapted, plan, prepared.ids, bare, run)
                judgement = judge_difference(judgement, found)
            known = plan.compiled_in if plan is not None else ()
            read = (run.compiled_in & prepared.files.keys()) | (bare.compiled_in if bare is not None else frozenset())
            judgement = judge_compiled(judgement, sorted(read.difference(known)))
    named = zip((*original.fail_to_pass, *original.pass_to_pass), judgement.cases, strict=True)
    return replace(judgement, cases=tuple(case.model_copy(update={"id": name}) for name, case in named))


async def _run_apart(
    fresh: Fresh, adapter: Adapter, order: Order, verifier: SuiteVerifier, prepared: PreparedSuite, plan: Plan,
    pool: CanaryPool, draw: random.Random,
) -> Judgement:  # fmt: skip
    """Judge a Python suite that shows expectations by two runs. Reports count in the first, which shows none and ends, and is
    read, before anything that shows one enters a sandbox. In the second the tests that decide inside have to pass besides."""
    language, spent = language_of(verifier), Spent()
    assert language is not None
    first = first_suite(language, verifier, plan, pool.renaming, draw)
    ids = first.shuffled(draw)
    alone = replace(order, ids=ids, files=files_of(ids))
    one = None
    if ids:
        async with fresh() as sandbox:
            one = await _collect_prepared(sandbox, adapter, alone, first, plan, None, spent)
    ids = tuple({*(prepared.ids[name] for name in plan.beside), *prepared.must_fail, *prepared.decoys})
    beside = replace(order, ids=tuple(draw.sample(ids, len(ids))), files=files_of(ids))
    async with fresh() as sandbox:
        two = await _collect_prepared(sandbox, adapter, beside, prepared, plan, None, spent)
        judgements = [judge_run(plan.beside, prepared, two)]
        if one is not None:
            judgements.insert(0, judge_run(plan.alone, first, one))
        expected = tuple(plan.ids[name] for name in (*verifier.fail_to_pass, *verifier.pass_to_pass))
        judgement = judge_both(expected, judgements)
        if one is not None and judgement.outcome is Cause.ALL_PASSED:
            copies = {name: first.ids[again(name)] for name in plan.notes}
            bare = Bare(one, first.ids, (), copies)
            judgement = judge_difference(judgement, await asyncio.to_thread(adapted, plan, prepared.ids, bare, two))
    return judgement


async def _collect_bare(
    fresh: Fresh, adapter: Adapter, order: Order, verifier: SuiteVerifier, plan: Plan | None, pool: CanaryPool,
    spent: Spent, draw: random.Random,
) -> Bare | None:  # fmt: skip
    """Drive work in JavaScript, Go or Rust by tests that show no expectation but those of canaries, which are wrong. Their names
    and the canaries are others than in the second run.

    It ends, and is read, before any test that shows a right expectation enters a sandbox. None where no test shows one,
    or nothing could be told from the run.
    """
    rewriter = rewriter_of(verifier)
    if plan is None or rewriter is None or not plan.residual:
        return None
    prepared = prepare_suite(verifier, pool, draw)
    if not (plan.notes or prepared.must_fail):
        return None
    files = kept_files(rewriter, plan, prepared)
    renamed: Callable[[str], str] = str
    if isinstance(rewriter, JavaScriptRewriter):
        files, renamed = untitled(files)
    ran_as = {name: renamed(prepared.ids[name]) for name in plan.notes}
    canaries = frozenset(map(renamed, prepared.must_fail))
    ids = tuple(sorted({*ran_as.values(), *canaries}))
    where = files_of(prepared.shuffled(draw))
    held = held_in_memory(adapter, where, files)
    order = replace(
        order, ids=ids, files=where, modules={path: files[path].decode() for path in sorted(held)},
        sites={number: renamed(test_id) for number, test_id in _sites(rewriter, plan, prepared).items()},
    )  # fmt: skip
    async with fresh() as sandbox:
        await write_tests(sandbox, {path: b"" if path in held else text for path, text in files.items()})
        run = await collect(sandbox, adapter, order, spent)
    return Bare(run, ran_as, canaries, compiled_in=run.compiled_in & prepared.files.keys())


def _sites(rewriter: Rewriter, plan: Plan, prepared: PreparedSuite) -> dict[int, str]:
    """As `Order.sites`, of prepared tests."""
    found = site_ids(rewriter, plan.sites)
    return {number: prepared.ids[test_id] for number, test_id in found.items() if test_id in prepared.ids}


async def _collect_prepared(
    sandbox: Sandbox, adapter: Adapter, order: Order, prepared: PreparedSuite, plan: Plan | None, rewriter: Rewriter | None,
    spent: Spent | None = None,
) -> TestRun:  # fmt: skip
    """Run prepared files: with a plan, test modules in memory and everything else on disk, judged outside."""
    if plan is None:
        await write_tests(sandbox, prepared.files)
        return await collect(sandbox, adapter, order, spent)
    held = set() if plan.on_disk else held_in_memory(adapter, order.files, prepared.files)
    shown = {path: text for path, text in prepared.files.items() if path not in plan.unshown}
    await write_tests(sandbox, {path: b"" if path in held else text for path, text in shown.items()})
    modules = {path: prepared.files[path].decode() for path in sorted(held)}
    sites = {} if rewriter is None else _sites(rewriter, plan, prepared)
    order = replace(order, modules=modules, preload=plan.preload, indexed="use", sites=sites)
    run = await asyncio.to_thread(judged, plan, prepared.ids, await collect(sandbox, adapter, order, spent))
    return run if rewriter is None else await asyncio.to_thread(judged_below, plan, prepared.ids, run)


def held_in_memory(adapter: Adapter, files: Sequence[str], texts: Collection[str]) -> set[str]:
    """The test files of a run that never lie on disk. node takes all of them or none."""
    held = {path for path in files if path.endswith(adapter.in_memory) and path in texts}
    return held if adapter.name != "node" or held == set(files) else set()


def prepare_suite(verifier: SuiteVerifier, pool: CanaryPool, draw: random.Random) -> PreparedSuite:
    """The hidden files with canaries of this grading."""
    expected = (*verifier.fail_to_pass, *verifier.pass_to_pass)
    language = language_of(verifier)
    if language is None:
        files = {path: text.encode() for path, text in verifier.test_files.items()}
        return PreparedSuite(files, {i: i for i in expected}, frozenset(), frozenset(), ())
    siblings = draw_siblings(pool, verifier, draw)
    return insert_canaries(language, verifier.test_files, expected, siblings, renaming=pool.renaming, draw=draw)


def draw_siblings(pool: CanaryPool, verifier: SuiteVerifier, draw: random.Random) -> list[SiblingTest]:
    """Mutated siblings of a few tests, those that must start to pass first: their names the agent cannot have seen."""
    language = language_of(verifier)
    assert language is not None
    new = {(p.where, p.names) for p in map(language.parse, verifier.fail_to_pass)}
    groups: dict[tuple[str, tuple[str, ...]], list[SiblingTest]] = {}
    for sibling in pool.siblings:
        groups.setdefault((sibling.path, sibling.names), []).append(sibling)
    keys = sorted(groups, key=lambda key: ((language.where(key[0]), key[1]) not in new, draw.random()))
    wanted = draw.randint(*CANARY_FUNCTIONS)
    chosen: list[SiblingTest] = []
    seconds = 0.0
    for key in keys[:wanted]:
        group = groups[key]
        for sibling in draw.sample(group, draw.randint(1, len(group))):
            if chosen and seconds + sibling.seconds > CANARY_SECONDS:
                break
            chosen.append(sibling)
            seconds += sibling.seconds
    return chosen


class LowEntropy(Exception):
    """The tests that must start to pass ask for too few bits that work cannot know."""

    def __init__(self, bits: float) -> None:
        super().__init__(f"{bits:.1f} bits")
        self.bits = bits


async def canary_pool(
    task: TaskSpec, verifier: SuiteVerifier, *, backend: Backend, environments: EnvironmentStore, limits: Limits,
    min_entropy: float = 0.0,
) -> CanaryPool:  # fmt: skip
    """The task's canaries, found out now with the oracle's work if nobody did before.

    Raises SandboxError, TaskError: without its canaries a task is not graded. Raises LowEntropy, before any canary is tried,
    for tests that ask for something, but for fewer bits than `min_entropy`.
    """
    require_admissible(task)
    store = PoolStore(environments.root)
    known = store.load(task.bundle_hash)
    if known is not None:
        return known
    language = language_of(verifier)
    if language is None:
        pool = CanaryPool(bundle_hash=task.bundle_hash, note="canaries cannot be inserted in tests of this framework")
        store.save(pool)
        return pool
    spec = environments.spec(task.environment)
    gold = from_files(task, task.gold).changes
    adapter, rewriter = adapter_of(verifier), rewriter_of(verifier)
    data, expected = verifier.test_files, (*verifier.fail_to_pass, *verifier.pass_to_pass)

    async def record(trial: Trial) -> TestRun:
        async with await backend.start(spec, limits=limits) as sandbox:
            await apply(sandbox, gold)
            texts = {path: text for path, text in {**data, **trial.modules}.items() if path not in trial.without}
            files = tuple(sorted(trial.modules)) if rewriter is None else files_of(expected)
            held = set() if trial.on_disk else held_in_memory(adapter, files, texts)
            await write_tests(sandbox, {path: b"" if path in held else t.encode() for path, t in texts.items()})
            order = order_of(task, verifier, environments, None, files=files, scale=POOL_TIME)
            modules = {path: texts[path] for path in sorted(held)}
            order = replace(order, modules=modules, preload=trial.preload, indexed="tell", sites=trial.sites)
            return await collect(sandbox, adapter, order)

    async def attempt(
        plan: Plan | None, prepared: PreparedSuite, everything: bool, changes: Sequence[FileChange] = gold
    ) -> TestRun:
        async with await backend.start(spec, limits=limits) as sandbox:
            await apply(sandbox, changes)
            ids = None if everything else prepared.shuffled(SECRET)
            files = files_of(tuple(prepared.ids.values()))
            order = order_of(task, verifier, environments, ids, files=files, scale=POOL_TIME)
            return await _collect_prepared(sandbox, adapter, order, prepared, plan, rewriter)

    plans = PlanStore(environments)
    plan = plans.load(task, verifier)
    if plan is None:
        if rewriter is not None:
            plan = await make_brace_plan(rewriter, verifier, record)
        elif isinstance(language, PythonTests):
            plan = await make_plan(verifier, record)
        if plan is not None:
            plans.save(task, verifier, plan)
    unmet: dict[str, set[int]] = {}
    free: tuple[str, ...] = ()
    if plan is not None:
        bare = prepare_suite(observed_verifier(verifier, plan), CanaryPool(bundle_hash=task.bundle_hash), SECRET)
        unmet = missed(plan, bare.ids, await attempt(plan, bare, False, changes=()))
        if (
            rewriter is not None and plan.residual
        ):  # nobody would notice that the others adapt to what decides beside them
            unmet = {name: sites for name, sites in unmet.items() if name in plan.notes}
        if plan.blank:  # what is reported beside an expectation may be taken from it
            unmet = {name: sites for name, sites in unmet.items() if name in plan.alone}
        free = unasked(verifier, plan, unmet)
        bits = task_entropy(verifier, plan, unmet)
        if 0 < bits < min_entropy:
            raise LowEntropy(bits)
    made = None
    if plan is not None:
        observed = observed_verifier(verifier, plan)
        try:
            baits = bait_siblings(language, plan, SECRET, MAX_FUNCTIONS) if rewriter is None else []
            made = await make_pool(
                language, observed, task.bundle_hash, partial(attempt, plan), draw=SECRET, more=baits,
                unasked=[plan.ids[test_id] for test_id in free],
            )  # fmt: skip
        except OracleFails:
            plan = None  # the tests as they are say why
    if made is None:
        made = await make_pool(language, verifier, task.bundle_hash, partial(attempt, None), draw=SECRET)
    unguarded = _unguarded(language, plan, free, made) if plan is not None else ()
    entropy = task_entropy(verifier, plan, unmet)
    made = made.model_copy(update={"plan": plan, "entropy": entropy, "unguarded": unguarded})
    store.save(made)
    return made


def _unguarded(language: Language, plan: Plan, ids: Sequence[str], pool: CanaryPool) -> tuple[str, ...]:
    bare = without_sibling(language, [plan.ids[test_id] for test_id in ids], pool.siblings)
    return tuple(test_id for test_id in ids if plan.ids[test_id] in bare)


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


@dataclass(slots=True)
class Spent:
    """Time of the runs so far of one grading, which they share: work must not hold it for a limit each."""

    own: float = 0.0
    wall: float = 0.0


async def collect(sandbox: Sandbox, adapter: Adapter, order: Order, spent: Spent | None = None) -> TestRun:
    """Run what is ordered, in the time that is left, and read what the run reports. Raises SandboxError."""
    invocation = adapter.invoke(order)
    spent = spent or Spent()
    result = await sandbox.exec(
        invocation.command,
        stdin=invocation.stdin,
        timeout=max(MIN_SECONDS, own_seconds(order) - spent.own),
        longest=max(MIN_SECONDS, wall_seconds(order) - spent.wall),
        private_result=True,
        keep_state=False,
    )
    spent.own += result.seconds - result.starved
    spent.wall += result.seconds
    return await asyncio.to_thread(read_report, adapter, order, invocation, result)
