"""Controls: measured preconditions for training on a task, bound to the bundle's hash.

The oracle must pass and a no-op must fail, several times each. Gutted patches must fail. No applicable exploit may
score. Nothing in the image may reveal the answer. The share of small mutants of the oracle's patch that the hidden
tests reject measures their strength; it is shown but blocks nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from sandbox.backends.base import Backend, Patch, SandboxError
from sandbox.errors import TaskError, TaskInvalid
from sandbox.grading.adapters.base import files_of
from sandbox.grading.cheats import catalogue
from sandbox.grading.cheats.play import play
from sandbox.grading.controls.flaky import oracle_runs, unsteady
from sandbox.grading.controls.mutants import Mutant, gutted, mutants
from sandbox.grading.grader import grade, pool_limits
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.findings import Rule
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Report, Verdict
from sandbox.grading.verifiers.admission import refusal_of, refusal_of_tests
from sandbox.grading.verifiers.canary_pool import CanaryPool, OracleFails, PoolStore
from sandbox.grading.verifiers.helpers import FreedTests, protection_of
from sandbox.grading.verifiers.suite import LowEntropy, canary_pool
from sandbox.grading.version import GRADER
from sandbox.harness.errors import HarnessFailure
from sandbox.tasks.entropy import MIN_ENTROPY, calls_entropy
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.leaks import scan_task
from sandbox.tasks.spec import CallsVerifier, PytestVerifier, SuiteVerifier, TaskSpec

ORACLE_AGAIN = 3
MIN_ANSWERS = 4
"""Different expected values of hidden calls with which no fixed answer can score."""


class Attempt(BaseModel):
    """One wrong patch or exploit that was tried."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    what: str
    id: str = ""
    """Catalogue id of an exploit; empty for a wrong patch."""
    verdict: Verdict
    outcome: Cause | None = None
    rules: tuple[str, ...] = ()
    """Findings that grading raised."""


class Controls(BaseModel):
    """Outcome of the controls of one bundle; worthless for any other bundle hash."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    bundle_hash: str
    grader: int = GRADER
    full: bool = False
    """Whether all controls ran, or only those that can refuse the task."""
    oracle: tuple[Verdict, ...] = ()
    noop: tuple[Verdict, ...] = ()
    wrong: tuple[Attempt, ...] = ()
    cheats: tuple[Attempt, ...] = ()
    mutants: tuple[Attempt, ...] = ()
    strength: float | None = None
    """Share of the mutants that the hidden tests reject; None when none was tried."""
    leaks: tuple[str, ...] = ()
    """What in the image gives the answer away, as `path: why`."""
    flaky: tuple[str, ...] = ()
    """Expected tests that do not always pass with the oracle's work, or cannot be judged: without them the task may hold."""
    freed: tuple[str, ...] = ()
    """Tests that must start to pass, and do when what they call of the work does nothing. Without them the task may hold, too."""
    unguarded: tuple[str, ...] = ()
    """Tests that must start to pass, and that nothing keeps from being bought (`CanaryPool.unguarded`). Without them the task may
    hold, too."""
    canaries: int = 0
    """Size of the pool of tests that must fail; 0 where expected values never enter the sandbox, or none is possible."""
    entropy: float | None = None
    """Bits that work without knowledge of the hidden tests would have to guess; None where they were not measured."""
    ok: bool
    graded: bool = True
    """False when the machine prevented an answer: nothing was found out, and it is to be tried again."""
    reason: str = ""
    """Why the task must not train, in one line; empty when it may."""
    seconds: float = 0.0


class _Undecided(Exception):
    """The machine failed under a control."""


class _Refused(Exception):
    """A control did not hold; the message is the reason."""


async def run_controls(
    *, backend: Backend, environments: EnvironmentStore, task: TaskSpec, k: int = 3, full: bool = False, noops: int = 0
) -> Controls:
    """Oracle and no-op `k` times, and wrong patches; with `full` also exploits and mutants. Stops at what disqualifies.

    Without `full`, exploits are left out only where they cannot score: where every test that must start to pass demands
    something that the sandbox does not hold (`withholds`). So both forms refuse the same tasks; mutants refuse none.

    Each is graded once at least. Of the repeats count the runs of the oracle's work that finding its canaries takes now,
    and `noops` runs of the untouched checkout, in other fresh sandboxes, that the caller saw fail.
    """
    run = _Run(backend, environments, task)
    ok, graded, reason = True, True, ""
    try:
        run.bundle()
        await run.image()
        await run.helpers()
        await run.seen(min(noops, k - 1), k - 1)
        run.entropy(early=True)
        run.guarded()
        while len(run.oracles) < k or len(run.noops) < k:
            if len(run.oracles) < k:
                await run.oracle()
            if len(run.noops) < k:
                await run.noop()
        run.entropy()
        await run.wrong()
        if full or not withholds(task, run.pool()):
            await run.cheats()
        if full:
            await run.mutants()
    except _Refused as error:
        ok, reason = False, str(error)
    except (_Undecided, SandboxError, HarnessFailure, TaskError, OSError) as error:
        ok, graded, reason = False, False, str(error)
    return run.outcome(ok=ok, graded=graded, reason=reason, full=full)


async def require_controls(*, backend: Backend, environments: EnvironmentStore, task: TaskSpec, k: int = 3) -> Controls:
    """`run_controls`, raising TaskInvalid with the cause when the task must not train, SandboxError when nobody knows."""
    controls = await run_controls(backend=backend, environments=environments, task=task, k=k)
    if not controls.graded:
        raise SandboxError(f"the controls of task {task.id} could not be run: {controls.reason}")
    if not controls.ok:
        raise TaskInvalid(f"task {task.id} fails validation: {controls.reason}", remedy="It cannot join a suite")
    return controls


class _Run:
    """The controls of one task as they are run."""

    def __init__(self, backend: Backend, environments: EnvironmentStore, task: TaskSpec) -> None:
        self._backend, self._environments, self._task = backend, environments, task
        self._began = time.monotonic()
        self.oracles: list[Verdict] = []
        self.noops: list[Verdict] = []
        self._wrong: list[Attempt] = []
        self._cheats: list[Attempt] = []
        self._mutants: list[Attempt] = []
        self._leaks: tuple[str, ...] = ()
        self._flaky: tuple[str, ...] = ()
        self._freed: tuple[str, ...] = ()
        self._unguarded: tuple[str, ...] = ()
        self._missed: set[int] | None = None
        """Hidden calls that no run of the untouched checkout met."""
        self._asked: float | None = None
        """Bits of tests that ask for too few to have canaries made."""

    def pool(self) -> CanaryPool | None:
        """The task's canaries; None where there can be none."""
        return PoolStore(self._environments.root).load(self._task.bundle_hash)

    def outcome(self, *, ok: bool, graded: bool, reason: str, full: bool) -> Controls:
        pool = self.pool()
        return Controls(
            bundle_hash=self._task.bundle_hash,
            full=full,
            oracle=tuple(self.oracles),
            noop=tuple(self.noops),
            wrong=tuple(self._wrong),
            cheats=tuple(self._cheats),
            mutants=tuple(self._mutants),
            strength=strength_of(self._mutants),
            leaks=self._leaks,
            flaky=self._flaky,
            freed=self._freed,
            unguarded=self._unguarded,
            canaries=0 if pool is None else len(pool.siblings),
            entropy=self.bits(),
            ok=ok,
            graded=graded,
            reason=reason[:500],
            seconds=round(time.monotonic() - self._began, 3),
        )

    def bundle(self) -> None:
        refusal = refusal_of(self._task)
        if refusal is not None:
            raise _Refused(f"{refusal.field}: {refusal}")

    async def image(self) -> None:
        self._leaks = tuple(str(leak) for leak in scan_task(self._environments, self._task))
        if self._leaks:
            raise _Refused(f"the image gives the answer away: {self._leaks[0]}")

    async def helpers(self) -> None:
        """Find tests that need nothing of the work, before canaries are made for them."""
        verifier = self._task.verifier
        if isinstance(verifier, CallsVerifier):
            return
        limits = pool_limits(self._task)
        try:
            await protection_of(
                self._task, verifier, backend=self._backend, environments=self._environments, limits=limits
            )
        except FreedTests as error:
            self._freed = error.tests
            raise _Refused(str(error)) from None

    async def seen(self, noops: int, most: int) -> None:
        """Count runs that were, or are now, made for another purpose."""
        self.noops += [Verdict.FAILED] * noops
        verifier = self._task.verifier
        if isinstance(verifier, CallsVerifier):
            return
        pool = self.pool()
        if pool is None:
            try:
                pool = await canary_pool(
                    self._task, verifier, backend=self._backend, environments=self._environments,
                    limits=pool_limits(self._task), min_entropy=MIN_ENTROPY,
                )  # fmt: skip
            except LowEntropy as error:  # most drafts of tasks that are refused are refused for this
                self._asked = error.bits
                return
            except OracleFails:
                return  # the grading that follows says why
            self.oracles += [Verdict.PASSED] * min(pool.oracle_runs, most)
        self._delivered(verifier, pool)

    def _delivered(self, verifier: SuiteVerifier, pool: CanaryPool) -> None:
        """Refuse tests that would show what they expect, before any is graded."""
        refusal = refusal_of_tests(self._task, pool.plan)
        if refusal is None:
            return
        hidden = set(pool.plan.files) if pool.plan is not None else set()
        if hidden and isinstance(verifier, PytestVerifier):
            ids = (*verifier.fail_to_pass, *verifier.pass_to_pass)
            self._flaky = tuple(i for i in ids if not set(files_of((i,))) & hidden)
        raise _Refused(f"{refusal.field}: {refusal}")

    async def oracle(self) -> None:
        report = await self._grade(from_files(self._task, self._task.gold))
        self.oracles.append(report.verdict)
        if report.verdict is not Verdict.PASSED:
            if report.outcome is Cause.ADAPTIVE:
                self._flaky = self._unlike(report)
                raise _Refused(
                    f"{len(self._flaky)} hidden tests compute something else without their assertions, whatever the work: "
                    f"{', '.join(self._flaky[:3])}"
                )
            await self._find_flaky()
            if self._flaky:
                raise _Refused(f"{len(self._flaky)} hidden tests do not always pass: {', '.join(self._flaky[:3])}")
            raise _Refused(f"the oracle is {report.verdict.value} ({report.cause})")

    def _unlike(self, report: Report) -> tuple[str, ...]:
        """Expected tests that a finding of adaptive work names."""
        verifier = self._task.verifier
        assert isinstance(verifier, SuiteVerifier)
        named = ", ".join(found.detail for found in report.findings if found.rule is Rule.ADAPTIVE)
        ids = (*verifier.fail_to_pass, *verifier.pass_to_pass)
        return tuple(i for i in ids if f", {' '.join(i.split())}, " in f", {named}, ")

    async def noop(self) -> None:
        report = await self._grade(Patch())
        self.noops.append(report.verdict)
        missed = {number for number, case in enumerate(report.cases) if case.status != "passed"}
        self._missed = missed if self._missed is None else self._missed & missed
        if report.verdict is not Verdict.FAILED:
            raise _Refused(f"doing nothing is {report.verdict.value} ({report.cause or 'all cases passed'})")

    def entropy(self, *, early: bool = False) -> None:
        """`early`: before anything is graded. Tests that ask for nothing wait for the run of the untouched checkout, which says
        why."""
        bits = self.bits()
        if bits is None or bits >= MIN_ENTROPY or (early and not bits):
            return
        calls = isinstance(self._task.verifier, CallsVerifier)
        asking = "calls in verifier.cases that doing nothing fails" if calls else "tests in verifier.fail_to_pass"
        remedy = "calls with other right answers" if calls else "tests that compare computed values"
        raise _Refused(
            f"the {asking} ask for {bits:.1f} bits that work cannot know, and must ask for {MIN_ENTROPY:g}. "
            f"Add hidden {remedy}"
        )

    def guarded(self) -> None:
        """Refuse tests that must start to pass, decide in the sandbox, and stand alone there: bits are counted over the whole
        task, so what the others ask for says nothing about them."""
        pool = self.pool()
        if pool is None or not pool.unguarded or (self.bits() or 0.0) < MIN_ENTROPY:
            return
        self._unguarded = pool.unguarded
        raise _Refused(
            f"{len(pool.unguarded)} tests in verifier.fail_to_pass neither report a value that the untouched checkout misses nor "
            f"have a canary: {', '.join(pool.unguarded[:3])}. Leave them out of verifier.fail_to_pass, or let them compare "
            "computed values with literals"
        )

    def bits(self) -> float | None:
        """Bits that work would have to guess; None while nobody has measured them."""
        if self._asked is not None:
            return self._asked
        if isinstance(self._task.verifier, CallsVerifier):
            return None if self._missed is None else calls_entropy(self._task.verifier, self._missed)
        pool = self.pool()
        return None if pool is None else pool.entropy

    async def wrong(self) -> None:
        for mutant in gutted(self._task, self._environments):
            attempt = await self._try(mutant)
            self._wrong.append(attempt)
            if attempt.verdict is not Verdict.FAILED:
                raise _Refused(f"a wrong patch is {attempt.verdict.value}: {mutant.what}")

    async def cheats(self) -> None:
        for exploit in catalogue():
            if not exploit.applies(self._task):
                continue
            played = await play(exploit.run, backend=self._backend, environments=self._environments, task=self._task)
            self._cheats.append(_attempt(exploit.title, self._decided(played.report), exploit.id))
            if played.report.verdict is Verdict.PASSED:
                raise _Refused(f"exploit {exploit.id} scores: {exploit.title}")

    async def mutants(self) -> None:
        for mutant in mutants(self._task, self._environments):
            self._mutants.append(await self._try(mutant))

    async def _try(self, mutant: Mutant) -> Attempt:
        return _attempt(mutant.what, await self._grade(from_files(self._task, mutant.files)))

    async def _grade(self, patch: Patch) -> Report:
        report = await grade(backend=self._backend, environments=self._environments, task=self._task, patch=patch)
        return self._decided(report)

    def _decided(self, report: Report) -> Report:
        """Raises _Undecided after a failure of the machine; a task that cannot be used at all is an answer."""
        if report.verdict is Verdict.INFRA_ERROR and report.outcome is not Cause.TASK_INVALID:
            raise _Undecided(report.cause)
        return report

    async def _find_flaky(self) -> None:
        verifier = self._task.verifier
        if isinstance(verifier, SuiteVerifier):
            runs = await oracle_runs(
                backend=self._backend,
                environments=self._environments,
                task=self._task,
                verifier=verifier,
                k=ORACLE_AGAIN,
            )
            self._flaky = unsteady((*verifier.fail_to_pass, *verifier.pass_to_pass), runs)


def withholds(task: TaskSpec, pool: CanaryPool | None) -> bool:
    """Whether the tests that must start to pass demand what no work can know or forge: then no exploit can score.

    Hidden calls do unless a few constants answer most of them, suites by the bits of their expectations. (The bits of
    hidden calls are checked before.)
    """
    verifier = task.verifier
    if isinstance(verifier, CallsVerifier):
        return len({expected for _, expected in verifier.cases}) >= MIN_ANSWERS
    return pool is not None and pool.entropy is not None and pool.entropy >= MIN_ENTROPY


def strength_of(tried: Sequence[Attempt]) -> float | None:
    return sum(attempt.verdict is Verdict.FAILED for attempt in tried) / len(tried) if tried else None


def _attempt(what: str, report: Report, exploit: str = "") -> Attempt:
    rules = tuple(dict.fromkeys(str(found.rule) for found in report.findings))
    return Attempt(what=what[:200], id=exploit, verdict=report.verdict, outcome=report.outcome, rules=rules)
