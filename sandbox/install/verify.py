"""The final check of an environment: fresh sandboxes without network, the unseen goals, the suite, three times over."""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sandbox.backends.base import Backend, EnvSpec, Limits, Sandbox
from sandbox.grading.adapters import ADAPTERS
from sandbox.grading.adapters.base import Order, TestRun, files_of
from sandbox.grading.verifiers.suite import collect
from sandbox.install.recipes.base import Installed, Log
from sandbox.install.recipes.goals import Goal, judge, judge_suite
from sandbox.install.record import Evidence

REPEATS = 3
AT_ONCE = 2
"""Concurrent repeats; more would slow down tests that measure speed."""
IMPORT_SECONDS = 120.0
COVER_PART = 300
COVER_TESTS = 3000
COVER_SECONDS = 20.0
"""Budget of test time for coverage; the fastest tests are watched first."""
COVER_TIME = 3.0
"""Slowdown factor of recording which functions are entered."""
LIMITS = Limits(
    memory_bytes=3 << 30, disk_bytes=2 << 30, inodes=400_000, processes=512, open_files=4096, cpus=2.0,
    file_bytes=1 << 30, call_seconds=600.0, life_seconds=3600.0,
)  # fmt: skip


@dataclass(slots=True)
class Verified:
    evidence: Evidence
    problem: str
    """The first goal that is not met, or what differs between the repeats; empty when all holds."""
    runs: tuple[TestRun, ...]


async def verify(
    spec: EnvSpec, installed: Installed, unseen: Sequence[Goal], *, backend: Backend, log: Log, repeats: int = REPEATS
) -> Verified:
    """Judge an environment by what its installer has not seen. Raises SandboxError."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def repeat(number: int) -> tuple[bool, TestRun, list[str]]:
        async with slots, await backend.start(spec, limits=LIMITS) as box:
            importable = await imports(box, installed)
            run = await collect(box, ADAPTERS[installed.framework], installed.order)
            problems = [why for goal in unseen if (why := await _unmet(box, goal, run, installed))]
        goals_met = f"{len(unseen) - len(problems)} of {len(unseen)} unseen goals met"
        words = [f"repeat {number}: {_count(run, 'passed')} of {len(run.cases)} tests pass, {goals_met}"]
        log("\n".join(words + [f"  not met: {why}" for why in problems]))
        return importable, run, problems

    jobs = [asyncio.create_task(repeat(number)) for number in range(1, repeats + 1)]
    try:
        found = [await job for job in jobs]
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
    runs = [run for _, run, _ in found]
    problem = next((why for _, _, problems in found for why in problems), "")
    met = min(len(unseen) - len(problems) for _, _, problems in found)
    same = all(_outcomes(run) == _outcomes(runs[0]) for run in runs)
    for test_id, words in changed(runs).items():
        log(f"  differs between the repeats: {test_id}: {words}")
    evidence = Evidence(
        importable=all(importable for importable, _, _ in found), collected=len(runs[0].cases),
        not_loaded=len(runs[0].file_errors), left_out=installed.left_out, passed=_count(runs[0], "passed"),
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


async def covered(spec: EnvSpec, order: Order, tests: Mapping[str, float], *, backend: Backend) -> TestRun:
    """The tests once more, in parts, to see which functions each enters; of many only those that fit are watched.

    `tests` have their seconds. A part is as large as the private descriptor's report may be. Raises SandboxError.
    """
    whole = TestRun(finished=True)
    quick = sorted(tests, key=lambda test_id: (tests[test_id], test_id))[:COVER_TESTS]
    spent = list(itertools.accumulate(tests[test_id] for test_id in quick))
    watched_tests = sorted(quick[: max(1, bisect.bisect_right(spent, COVER_SECONDS))])
    async with await backend.start(spec, limits=LIMITS) as box:
        for start in range(0, len(watched_tests), COVER_PART):
            part = tuple(watched_tests[start : start + COVER_PART])
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


def unsteady(runs: Sequence[TestRun]) -> tuple[str, ...]:
    """Tests whose outcome is not the same in every run; files that load in some runs only cannot be set aside."""
    found = [_outcomes(run) for run in runs]
    differ = {i for i in set().union(*found) if len({one.get(i) for one in found}) > 1}
    return tuple(sorted(differ)) if all("::" in test_id for test_id in differ) else ()


def without(installed: Installed, aside: Sequence[str]) -> Installed:
    """The same suite, some tests left out by name."""
    order = installed.order
    if order.ids is not None:
        order = replace(order, ids=tuple(i for i in order.ids if i not in aside))
    elif installed.framework == "pytest":
        order = replace(order, arguments=(*order.arguments, *(f"--deselect={i}" for i in aside)))
    return replace(installed, order=order)


def changed(runs: Sequence[TestRun], limit: int = 10) -> dict[str, str]:
    """Tests whose outcome is not the same in every run → the outcomes, in the order of the runs; `most` at most."""
    found = [_outcomes(run) for run in runs]
    ids = sorted(set().union(*found))
    differ = {
        i: ", ".join(one.get(i, "not run") for one in found) for i in ids if len({one.get(i) for one in found}) > 1
    }
    return dict(itertools.islice(differ.items(), limit))


def _outcomes(run: TestRun) -> dict[str, str]:
    return {i: str(case.status) for i, case in run.cases.items()} | dict.fromkeys(run.file_errors, "not loaded")


def _count(run: TestRun, status: str) -> int:
    return sum(case.status == status for case in run.cases.values())
