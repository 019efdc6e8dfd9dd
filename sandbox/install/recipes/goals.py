"""Stage 1: ten commands that must work in the finished environment, each with its expected output.

Goals are written before anything is installed, and the installer sees only three of them. Expectations are
deliberately simple, because a program judges them, not the installer.
"""

from __future__ import annotations

import random
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sandbox.backends.base import EndReason, ExecResult
from sandbox.grading.adapters.base import TestRun

COUNT = 10
SHOWN = 3
MAX_COMMAND = 2000
SHARE = 0.8
"""Share of tests that must pass in the goal that runs the suite."""


class Expect(BaseModel):
    """Conditions under which a command did what its description says."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    exit_codes: tuple[int, ...] = (0,)
    pattern: str = Field(default="", max_length=300)
    """A regular expression that must match in the output."""
    passed_share: float = Field(default=0.0, ge=0.0, le=1.0)
    """Minimum share of passing tests in the pytest summary; 0 requires no summary."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern {pattern!r} is no regular expression ({error}); write another") from None
        return pattern


class Goal(BaseModel):
    """A command of the checkout's folder and its expected output."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["toolchain", "import", "version", "tests", "suite", "run"]
    command: str = Field(min_length=1, max_length=MAX_COMMAND)
    description: str = Field(min_length=1, max_length=500)
    """The expected output, in words."""
    expect: Expect = Expect()
    seconds: float = Field(default=120.0, gt=0, le=1800)


class GoalSet(BaseModel):
    """What stage 1 hands over. `shown` are the indexes that the installer sees."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    goals: tuple[Goal, ...] = Field(min_length=COUNT, max_length=COUNT)
    shown: tuple[int, ...] = Field(min_length=SHOWN, max_length=SHOWN)
    by: str = "deterministic"
    """Which tier wrote them."""

    @property
    def seen(self) -> tuple[Goal, ...]:
        return tuple(self.goals[i] for i in self.shown)

    @property
    def unseen(self) -> tuple[Goal, ...]:
        return tuple(goal for i, goal in enumerate(self.goals) if i not in self.shown)


def draw(goals: list[Goal], *, seed: str, by: str = "deterministic") -> GoalSet:
    """Choose what the installer sees: one goal of tests where there is one, the rest by chance."""
    rng = random.Random(seed)
    about_tests = [i for i, goal in enumerate(goals) if goal.kind == "tests"]
    first = rng.sample(about_tests, 1) if about_tests else []
    rest = [i for i in range(len(goals)) if i not in first and goals[i].kind != "suite"]
    return GoalSet(goals=tuple(goals), shown=tuple(sorted(first + rng.sample(rest, SHOWN - len(first)))), by=by)


def judge(goal: Goal, result: ExecResult) -> str:
    """Empty when the result is as expected; else what is not."""
    output = result.output.decode("utf-8", "replace")
    tail = output.strip()[-300:]
    if result.ended is EndReason.TIMEOUT:
        return f"`{goal.command}` did not end within {goal.seconds:g} s"
    if result.exit_code not in goal.expect.exit_codes:
        return f"`{goal.command}` ended with {result.exit_code}: {tail}"
    if goal.expect.pattern and not re.search(goal.expect.pattern, output):
        return f"`{goal.command}` did not print {goal.description}: {tail}"
    if goal.expect.passed_share:
        passed, other = summary(output)
        if passed < 1 or passed < goal.expect.passed_share * (passed + other):
            return f"`{goal.command}`: {passed} tests passed, {other} did not; expected: {goal.description}"
    return ""


def judge_suite(goal: Goal, run: TestRun) -> str:
    """The suite's goal is judged from its per-test report, not from what was printed."""
    counted = [case for case in run.cases.values() if case.status != "skipped"]
    passed = sum(case.status == "passed" for case in counted)
    whole = len(counted) + len(run.file_errors)
    if passed < 1 or passed < goal.expect.passed_share * whole:
        return f"{passed} of {whole} tests of the suite passed; expected: {goal.description}"
    return ""


def summary(output: str) -> tuple[int, int]:
    """(passed, failed or broken) tests that the last pytest summary of an output counts."""
    counts = {"passed": 0, "failed": 0, "error": 0}
    for line in reversed(output.splitlines()):
        found = re.findall(r"(\d+) (passed|failed|error)s?\b", line)
        if found:
            for number, word in found:
                counts[word] = int(number)
            break
    return counts["passed"], counts["failed"] + counts["error"]
