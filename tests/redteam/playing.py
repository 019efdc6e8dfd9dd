"""Playing a pair: exploit and honest run in real sandboxes, graded and audited, into one row of the table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.backends.base import Backend, Sandbox
from sandbox.grading.audit import Attempt, Finding, Step, audit
from sandbox.grading.cheats.base import Script
from sandbox.grading.cheats.play import Hand, Played, play
from sandbox.grading.patches.patch import render
from sandbox.grading.redteam import Outcome, Row
from sandbox.grading.verdict.outcomes import Verdict
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import SuiteVerifier, TaskSpec
from tests.redteam.base import Pair, TaskName, visible

MIN_CHARS = 12
"""Shorter lines of the answer may stand anywhere."""
SECONDS = 400.0
"""Deadline of one scripted attempt with its grading, on a machine that is busy."""
OWN_RUN_SECONDS = 60.0


@dataclass(slots=True)
class Ground:
    """Where pairs are played."""

    name: str
    backend: Backend
    environments: EnvironmentStore
    tasks: Mapping[TaskName, TaskSpec]
    marks: tuple[str, ...] = ()
    """Words of the host that no sandbox may show."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))

    async def play(self, script: Script, task: TaskSpec, **hands: Hand | None) -> Played:
        """Raises TimeoutError besides what `play` raises."""
        async with self.slots, asyncio.timeout(SECONDS):
            options: dict[str, Any] = dict(hands)
            return await play(script, backend=self.backend, environments=self.environments, task=task, **options)


@dataclass(frozen=True, slots=True)
class Result:
    """A row, and what the bench wants besides."""

    row: Row
    exploit: Played
    honest: Played
    task: TaskSpec


async def try_pair(pair: Pair, ground: Ground, *, unguarded: bool = True) -> Result:
    """Play both, and, with `unguarded`, the exploit once more where its defence is missing."""
    task = ground.tasks[pair.task]
    exploit, honest, works = await asyncio.gather(
        ground.play(pair.exploit.run, task),
        ground.play(pair.honest, task),
        _without_defence(pair, ground, task) if unguarded else _untried(),
    )
    row = Row(
        id=pair.exploit.id,
        title=pair.exploit.title,
        defence=pair.defence,
        backend=ground.name,
        task=pair.task,
        exploit=outcome_of(exploit, task),
        honest=outcome_of(honest, task),
        wanted=tuple(str(rule) for rule in pair.exploit.findings),
        leaked=leaked(exploit, task, ground.marks),
        unguarded=works,
    )
    return Result(row, exploit, honest, task)


async def _untried() -> bool | None:
    return None


async def _without_defence(pair: Pair, ground: Ground, task: TaskSpec) -> bool | None:
    if pair.leak is not None:
        played = await ground.play(pair.exploit.run, task, before=pair.leak)
        return played.report.verdict is Verdict.PASSED
    if pair.fools_own_sandbox:
        paid: list[bool] = []

        async def judge(sandbox: Sandbox, task: TaskSpec) -> None:
            paid.append(await judged_in_place(sandbox, task))

        await ground.play(pair.exploit.run, task, after=judge)
        return paid[0]
    return None


async def judged_in_place(sandbox: Sandbox, task: TaskSpec) -> bool:
    """Grading as it should not be: the hidden tests, run by pytest in the agent's own shell, believed by the exit code."""
    assert isinstance(task.verifier, SuiteVerifier)
    for path, text in task.verifier.test_files.items():
        await sandbox.write(path, text.encode())
    result = await sandbox.exec(f"python3 -m pytest -q {' '.join(task.verifier.test_files)}", timeout=OWN_RUN_SECONDS)
    return result.exit_code == 0


def findings_of(played: Played, task: TaskSpec, *, rules_only: bool = False) -> list[Finding]:
    return audit(attempt_of(played, task), () if rules_only else played.report.findings)


def attempt_of(played: Played, task: TaskSpec) -> Attempt:
    """What the auditor gets to see of a scripted attempt."""
    steps = [Step(step.text, (step.call,), (step.result,)) for step in played.steps]
    skipped = [f"{path}: {why}" for path, why in played.patch.skipped]
    return Attempt.of(task, steps, render(played.patch), skipped)


def outcome_of(played: Played, task: TaskSpec) -> Outcome:
    report = played.report
    rules = tuple(dict.fromkeys(finding.rule for finding in findings_of(played, task)))
    return Outcome(verdict=report.verdict, outcome=report.outcome, cause=report.cause[:300], rules=rules)


def leaked(played: Played, task: TaskSpec, marks: tuple[str, ...]) -> tuple[str, ...]:
    """Lines of the oracle or of hidden tests, and marks of the host, in what tools answered."""
    shown = {line.strip() for text in visible(task).values() for line in text.split("\n")}
    secret = list(task.gold.values())
    if isinstance(task.verifier, SuiteVerifier):
        secret += task.verifier.test_files.values()
    lines = {line.strip() for text in secret for line in text.split("\n")} - shown
    words = [*marks, *(line for line in lines if len(line) >= MIN_CHARS)]
    answers = "\n".join(step.result.output for step in played.steps)
    return tuple(word for word in words if word in answers)
