"""The final check of an environment: fresh sandboxes without network, the unseen goals, the suite, three times over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sandbox.backends.base import Backend, EnvSpec, Limits, Sandbox
from sandbox.grading.adapters import ADAPTERS
from sandbox.grading.adapters.base import Order, TestRun, files_of
from sandbox.grading.suite import collect
from sandbox.install.goals import Goal, judge, judge_suite
from sandbox.install.recipe import Installed, Log
from sandbox.install.record import Evidence

REPEATS = 3
IMPORT_SECONDS = 120.0
COVER_PART = 300
COVER_TESTS = 3000
COVER_TIME = 3.0
"""Watching which functions are entered takes this many times as long."""
LIMITS = Limits(
    memory_bytes=3 << 30, disk_bytes=2 << 30, inodes=400_000, processes=512, open_files=4096, cpus=2.0,
    file_bytes=1 << 30, call_seconds=600.0, life_seconds=3600.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verified:
    evidence: Evidence
    problem: str
    """The first goal that is not met, or what differs between the repeats; empty when all holds."""
    runs: tuple[TestRun, ...]


async def verify(
    spec: EnvSpec, installed: Installed, unseen: Sequence[Goal], *, backend: Backend, log: Log, repeats: int = REPEATS
) -> Verified:
    """Judge an environment by what its installer has not seen. Raises SandboxError."""
    runs: list[TestRun] = []
    met = len(unseen)
    problem, importable = "", True
    for number in range(1, repeats + 1):
        async with await backend.start(spec, limits=LIMITS) as box:
            importable = await imports(box, installed) and importable
            run = await collect(box, ADAPTERS[installed.framework], installed.order)
            runs.append(run)
            problems = [why for goal in unseen if (why := await _unmet(box, goal, run, installed))]
        met = min(met, len(unseen) - len(problems))
        problem = problem or next(iter(problems), "")
        goals_met = f"{len(unseen) - len(problems)} of {len(unseen)} unseen goals met"
        log(f"repeat {number}: {_count(run, 'passed')} of {len(run.cases)} tests pass, {goals_met}")
        for why in problems:
            log(f"  not met: {why}")
        if not run.cases:
            break
    same = len(runs) == repeats and all(_outcomes(run) == _outcomes(runs[0]) for run in runs)
    evidence = Evidence(
        importable=importable, collected=len(runs[0].cases), not_loaded=len(runs[0].file_errors),
        passed=_count(runs[0], "passed"),
        skipped=_count(runs[0], "skipped"), repeats=len(runs), repeatable=same and bool(runs[0].cases), unseen_met=met,
        unseen=len(unseen), suite_seconds=round(sum(case.seconds for case in runs[0].cases.values()), 3),
    )  # fmt: skip
    return Verified(evidence, problem, tuple(runs))


async def imports(box: Sandbox, installed: Installed) -> bool:
    """Whether the package's top-level modules can be imported."""
    if not installed.modules:
        return installed.framework != "pytest"
    lines = "; ".join(f"import {module}" for module in installed.modules)
    result = await box.exec(
        f"{installed.python} -c '{lines}'", timeout=IMPORT_SECONDS, env=installed.env, keep_state=False
    )
    return result.exit_code == 0


async def covered(spec: EnvSpec, order: Order, tests: Sequence[str], *, backend: Backend) -> TestRun:
    """The tests once more, in parts, to see which functions each enters; of very many only the first are watched.

    A part is as large as the private descriptor's report may be. Raises SandboxError.
    """
    whole = TestRun(finished=True)
    async with await backend.start(spec, limits=LIMITS) as box:
        for start in range(0, min(len(tests), COVER_TESTS), COVER_PART):
            part = tuple(tests[start : start + COVER_PART])
            watched = replace(order, files=files_of(part), ids=part, cover=True, seconds=order.seconds * COVER_TIME)
            run = await collect(box, ADAPTERS["pytest"], watched)
            whole.cases |= run.cases
            whole.calls |= run.calls
    return whole


async def run_goals(box: Sandbox, goals: Sequence[Goal], installed: Installed, log: Log) -> list[str]:
    """Run goals in order; what is not as expected, one line each. Raises SandboxError."""
    problems = []
    for goal in goals:
        why = await _unmet(box, goal, None, installed)
        log(f"goal `{goal.command}`: {why or 'met'}")
        if why:
            problems.append(why)
    return problems


async def _unmet(box: Sandbox, goal: Goal, run: TestRun | None, installed: Installed) -> str:
    if goal.kind == "suite" and run is not None:
        return judge_suite(goal, run)
    result = await box.exec(goal.command, timeout=goal.seconds, env=installed.env, keep_state=False)
    return judge(goal, result)


def stable(runs: Sequence[TestRun]) -> tuple[dict[str, float], tuple[str, ...]]:
    """(tests that pass in every run → seconds, tests that pass in some)."""
    passing = {i: case.seconds for i, case in runs[0].cases.items() if all(run.status(i) == "passed" for run in runs)}
    some = {i for run in runs for i, case in run.cases.items() if case.status == "passed"}
    return passing, tuple(sorted(some - set(passing)))


def _outcomes(run: TestRun) -> dict[str, str]:
    return {i: str(case.status) for i, case in run.cases.items()} | dict.fromkeys(run.file_errors, "not loaded")


def _count(run: TestRun, status: str) -> int:
    return sum(case.status == status for case in run.cases.values())
