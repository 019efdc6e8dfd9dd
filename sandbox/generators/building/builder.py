"""Turn a draft into a task: the package's tests decide, then the controls.

The tests run once on the broken checkout. Failing tests are removed from the agent's checkout and must pass in the end; the
others must keep passing. The instruction is derived from what a failing test observed, never from the change.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from sandbox.backends.base import Backend, SandboxError
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.generators.building.instructions import Evidence, Style, evidence_of, leaks_answer, reveals, write
from sandbox.generators.building.pruning import functions_of, remove_functions
from sandbox.generators.building.yields import Yield
from sandbox.grading.adapters.base import Order, TestRun, files_of
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.controls import run_controls
from sandbox.grading.controls.flaky import without_tests
from sandbox.grading.verifiers.entropy import most_bits
from sandbox.grading.verifiers.plan_store import PlanStore
from sandbox.grading.verifiers.suite import collect
from sandbox.packages.build import BUILD_LIMITS, BuiltPackage
from sandbox.repositories.commits import Commit
from sandbox.tasks.entropy import MIN_ENTROPY
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, PytestVerifier, SuiteVerifier, TaskSpec

MAX_FAILING_SHARE = 0.5
"""A change that fails more of the tests than this breaks the package at import or at its root: not a puzzle."""
NEAR_SECONDS = 1.0
"""Run time of the tests of a task that enter what was changed."""
OTHER_SECONDS = 0.5
"""Run time of its other tests, which only must go on passing."""
MAX_DROPS = 2
"""Times that tests which cannot judge are left out of a task before it is given up."""
CANDIDATES = 4
AT_ONCE = 3
"""Drafts worked on side by side: two use the cores of a small machine while one waits for a sandbox."""

Rewrite = Callable[[str, Evidence], Awaitable[tuple[str, int]]]
"""Says an instruction in other words; also gives the tokens that it took."""


@dataclass(frozen=True, slots=True)
class TaskBuilder:
    """Where tasks of one package are made."""

    store: EnvironmentStore
    built: BuiltPackage
    backend: Backend
    found: Yield
    k: int = 3
    full: bool = False
    """Whether all controls must hold, exploits and mutants among them."""
    styles: tuple[Style, ...] = ("precise",)
    rewrite: Rewrite | None = None
    history: tuple[Commit, ...] = ()
    """Commits of the repository that the package was built from, the newest first."""
    candidates: int = CANDIDATES
    """Candidates whose drafts are tried together: as many as tasks are wanted, at most."""
    unjudged: set[str] = field(default_factory=set)
    """Tests that some controls found not to judge, whatever the bug: a draft that only these notice has no others run."""
    most: dict[str, float] = field(default_factory=dict)
    """Bits that a test asks for at most, of those whose assertions some controls have observed."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    """Tasks whose controls run side by side."""

    def hopeless(self, failing: Sequence[str]) -> bool:
        """Whether earlier controls have shown that a bug which these tests notice makes no task."""
        asked = sum(self.most.get(test_id, math.inf) for test_id in failing)
        return self.unjudged.issuperset(failing) or asked < MIN_ENTROPY

    def read(self, path: str) -> str:
        """A file of the pristine checkout. Raises OSError, UnicodeDecodeError."""
        return (self.store.repository(self.built.environment.digest) / path).read_text(encoding="utf-8")

    def texts(self, paths: Sequence[str]) -> dict[str, str]:
        """Those of these files that are UTF-8: the others stay as the environment has them, protected. Raises OSError."""
        found = {}
        for path in paths:
            try:
                found[path] = self.read(path)
            except UnicodeDecodeError:
                continue
        return found

    def pristine(self, path: str) -> str:
        """A file of the pristine checkout; empty where there is none that can be read as text."""
        try:
            return self.read(path)
        except (FileNotFoundError, UnicodeDecodeError):
            return ""


async def first_task(
    builder: TaskBuilder, drafts: AsyncIterator[Draft | Rejected], rng: random.Random
) -> list[TaskSpec]:
    """The first of some drafts that becomes a task with all its controls green, if one does. Raises SandboxError."""
    async for draft in drafts:
        if isinstance(draft, Rejected):
            builder.found.reject("", draft)
            continue
        made = await make_task(builder, draft, rng)
        if isinstance(made, Rejected):
            builder.found.reject(draft.operator, made)
        else:
            builder.found.keep(draft.operator)
            return [made]
    return []


async def make_task(builder: TaskBuilder, draft: Draft, rng: random.Random) -> TaskSpec | Rejected:
    """A draft as a task whose controls hold. Raises SandboxError, EnvironmentMissing."""
    made = await drafted(builder, draft, rng)
    return made if isinstance(made, Rejected) else await controlled(builder, made)


async def drafted(
    builder: TaskBuilder, draft: Draft, rng: random.Random, run: TestRun | None = None
) -> TaskSpec | Rejected:
    """The task without its controls, by what the expected tests say over the broken checkout."""
    run = run or await run_broken(builder, draft.broken, draft.expected)
    judged = judge(run, draft.expected, feature=bool(draft.summary))
    if isinstance(judged, Rejected):
        return judged
    failing, passing = judged
    messages = {test_id: run.cases[test_id].message for test_id in failing if test_id in run.cases}
    return await spec_of(builder, draft, failing, passing, messages, rng)


async def run_broken(builder: TaskBuilder, files: dict[str, str], expected: Sequence[str]) -> TestRun:
    """The expected tests over the checkout with these files, in a sandbox of their own."""
    async with await builder.backend.start(
        builder.store.spec(builder.built.environment), limits=BUILD_LIMITS
    ) as sandbox:
        for path, text in files.items():
            await sandbox.write(path, text.encode())
        return await collect(sandbox, PytestAdapter(), order_of(builder, expected))


def order_of(builder: TaskBuilder, expected: Sequence[str]) -> Order:
    """To run these tests, with what they observe told at length."""
    digest = builder.built.environment.digest
    return Order(
        files=files_of(tuple(expected)), ids=tuple(expected), python=builder.store.manifest(digest).python,
        conftest=any(builder.store.repository(digest).rglob("conftest.py")), seconds=seconds_for(builder.built, expected),
        # A file whose imports fail must not hide what the other files say.
        message_chars=4000, arguments=("--continue-on-collection-errors", *builder.built.pytest_args),
    )  # fmt: skip


def seconds_for(built: BuiltPackage, expected: Sequence[str]) -> float:
    """Processor time for a run: wrong code may loop for ever, so a few times what the right code needs."""
    return 3.0 + 5.0 * sum(built.tests[t] for t in expected)


def judge(run: TestRun, expected: Sequence[str], *, feature: bool = False) -> tuple[list[str], list[str]] | Rejected:
    """(failing, passing) tests of a broken checkout, if they make a puzzle.

    Without a `feature`, files of its tests may not load at all: that the rest is green was seen over what is left of them.
    """
    if not run.finished:
        return Rejected(Reason.HANGS, run.ending)
    failing = [
        t for t in expected if run.status(t) in (("failed", "error", "missing") if feature else ("failed", "error"))
    ]
    passing = [t for t in expected if run.status(t) == "passed"]
    if len(failing) + len(passing) != len(expected):
        return Rejected(Reason.UNCLEAR)
    if not failing:
        return Rejected(Reason.UNNOTICED)
    if not passing and not feature:
        return Rejected(Reason.NOTHING_LEFT)
    if not feature and len(failing) > MAX_FAILING_SHARE * len(expected):
        return Rejected(Reason.BREAKS_TOO_MUCH, f"{len(failing)} of {len(expected)}")
    return failing, passing


async def spec_of(
    builder: TaskBuilder, draft: Draft, failing: Sequence[str], passing: Sequence[str], messages: dict[str, str],
    rng: random.Random,
) -> TaskSpec | Rejected:  # fmt: skip
    """The bundle: instruction, checkout without the failing tests, hidden tests, oracle."""
    built = builder.built
    repo = builder.store.repository(built.environment.digest)
    expected = (*failing, *passing)
    pristine = {path: builder.read(path) for path in sorted({t.split("::", 1)[0] for t in expected})}
    conftests = sorted(p.relative_to(repo).as_posix() for p in repo.rglob("conftest.py"))
    pruned = draft.visible_tests or {
        path: remove_functions(pristine[path], functions) for path, functions in functions_of(failing).items()
    }
    told = await instruction_of(builder, draft, messages, rng)
    if isinstance(told, Rejected):
        return told
    digest = hashlib.sha256("".join(f"{p}\0{t}" for p, t in sorted(draft.broken.items())).encode()).hexdigest()[:10]
    return TaskSpec(
        id=f"{draft.source}-{built.name}-{digest}".lower(),
        source=draft.source,
        category=draft.category,
        instruction=told,
        environment=BuiltEnvironment(digest=built.environment.digest, overrides={**pruned, **draft.broken}),
        verifier=PytestVerifier(
            test_files={**pristine, **builder.texts(conftests)},
            fail_to_pass=tuple(failing),
            pass_to_pass=tuple(passing),
            timeout_seconds=seconds_for(built, expected),
            pytest_args=built.pytest_args,
        ),
        gold=draft.gold,
        protected=tuple(sorted({*pristine, *conftests})),
        family=draft.family[:200],
    )


async def instruction_of(
    builder: TaskBuilder, draft: Draft, messages: dict[str, str], rng: random.Random
) -> str | Rejected:
    """What the agent is told; of several bugs, one failure of each."""
    style = rng.choice(builder.styles)
    parts: list[str] = []
    for group in draft.groups or (tuple(messages),):
        evidence = evidence_of(
            builder.built.name, draft, {t: messages[t] for t in group if t in messages}, builder.read
        )
        if evidence is None:
            return Rejected(Reason.NEAR if draft.shown else Reason.NOTHING_TO_SHOW)
        text = write(evidence, style, rng)
        if leak := leaks_answer(text, draft, evidence):
            return Rejected(Reason.LEAKS, leak)
        if builder.rewrite is not None:
            said, tokens = await builder.rewrite(text, evidence)
            builder.found.model_tokens += tokens
            # A rewriting that tells too much is thrown away, not the task.
            if not (
                leaks_answer(said, draft, evidence) or reveals(said, text, draft.gold, draft.broken, tuple(messages))
            ):
                text = said
        parts.append(text)
    return "\n".join(parts)


async def controlled(builder: TaskBuilder, task: TaskSpec, *, noops: int = 0) -> TaskSpec | Rejected:
    """The task if its controls hold, without tests that do not always pass or cannot be judged; `noops` as `run_controls` has it.

    Raises SandboxError when nobody knows.
    """
    for _ in range(MAX_DROPS + 1):
        async with builder.slots:
            controls = await run_controls(
                backend=builder.backend,
                environments=builder.store,
                task=task,
                k=builder.k,
                full=builder.full,
                noops=noops,
            )
        builder.found.control_seconds = round(builder.found.control_seconds + controls.seconds, 3)
        if not controls.graded:
            raise SandboxError(controls.reason)
        if controls.ok:
            return task
        builder.unjudged.update(controls.flaky)
        builder.most.update(observed_bits(builder.store, task))
        dropped = (*controls.flaky, *controls.freed, *controls.unguarded)
        steady = without_tests(task, dropped) if dropped else None
        if steady is None:
            break
        task = steady  # the untouched checkout failed every test that must start to pass, so `noops` still counts
    return Rejected(Reason.CONTROLS, controls.reason)


def observed_bits(store: EnvironmentStore, task: TaskSpec) -> dict[str, float]:
    """`most_bits` of the tests of a task whose assertions were observed; empty where nobody did."""
    verifier = task.verifier
    plan = PlanStore(store).load(task, verifier) if isinstance(verifier, SuiteVerifier) else None
    return {} if plan is None else most_bits(plan)


async def harvest(
    jobs: Sequence[Callable[[], Awaitable[Sequence[TaskSpec]]]], *, count: int, at_once: int = AT_ONCE, each: int = 1
) -> AsyncIterator[TaskSpec]:
    """Up to `count` results, in the order of `jobs` whichever ends first, `at_once` of them under way.

    A job gives at most `each`.
    """
    slots = asyncio.Semaphore(at_once)
    running: list[asyncio.Task[Sequence[TaskSpec]]] = []
    waiting = iter(jobs)
    kept = 0

    async def bounded(job: Callable[[], Awaitable[Sequence[TaskSpec]]]) -> Sequence[TaskSpec]:
        async with slots:
            return await job()

    try:
        while kept < count:
            # A slow one in front must not leave the others idle; what is begun beyond `count` is thrown away.
            left = count - kept
            ahead = min(3 * at_once, left + at_once - 1 if each == 1 else math.ceil(left / each))
            while len(running) < ahead and (job := next(waiting, None)) is not None:
                running.append(asyncio.ensure_future(bounded(job)))
            if not running:
                return
            for made in (await running.pop(0))[: count - kept]:
                kept += 1
                yield made
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def tests_near(built: BuiltPackage, paths: Sequence[str], tests: Sequence[str]) -> tuple[str, ...]:
    """`tests`, which enter what was changed, and others that enter the files `paths`, within bounds of run time."""
    same = {t for place, ids in built.covered.items() if place.rpartition(":")[0] in paths for t in ids}
    others = sorted(same - set(tests), key=lambda t: hashlib.sha256(t.encode()).digest())
    return tuple(sorted((*_within(built, tests, NEAR_SECONDS), *_within(built, others, OTHER_SECONDS))))


def tests_elsewhere(built: BuiltPackage, tests: Sequence[str]) -> tuple[str, ...]:
    """As many tests as `tests` that are none of them, drawn by their names, within bounds of run time."""
    others = sorted(built.tests.keys() - set(tests), key=lambda t: hashlib.sha256(t.encode()).digest())
    return tuple(_within(built, others[: len(tests)], OTHER_SECONDS))


def _within(built: BuiltPackage, tests: Sequence[str], limit: float) -> list[str]:
    chosen: list[str] = []
    seconds = 0.0
    for test_id in tests:
        seconds += built.tests[test_id]
        if seconds > limit and chosen:
            break
        chosen.append(test_id)
    return chosen
