"""A scripted, deliberately imperfect expert for the procedural family, acting through the real harness.

Its episodes teach the form of the work (find, read, edit, sometimes test, finish) and leave the judgement to
reinforcement learning: most of its edits are plausible guesses, the intended fix is only a little more likely
than any other. It knows the task's hidden choices through the generator, never through the sandbox.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.procedural import TEST_COMMAND, Edit, Option, Problem, problem_of
from sandbox.tasks.spec import TaskSpec


class Tools(Protocol):
    """The part of a harness session that the expert needs."""

    async def run(self, calls: list[ToolCall]) -> list[ToolResult]: ...


@dataclass(frozen=True, slots=True)
class Habits:
    """How good the expert is. Shares are probabilities of one attempt or one episode."""

    right: float = 0.04
    """The intended fix; otherwise a guess, which may be right by luck."""
    aim: float = 0.3
    """A guess goes to the faulty piece; otherwise to any piece of the function."""
    check: float = 0.35
    """Runs the visible test after an edit."""
    retry: float = 0.4
    """Edits again after a failed test."""
    slip: float = 0.1
    """Misspells a name, or asks for an edit that changes nothing or names no line; then does it properly.

    SFT imitates the recovery, not the slip.
    """
    tamper: float = 0.02
    """Rewrites the visible test instead of the code. Graders drop such edits: it never earns a reward."""
    attempts: int = 3


@dataclass(frozen=True, slots=True)
class ExpertTurn:
    call: ToolCall
    result: ToolResult


async def run_expert(
    session: Tools, task: TaskSpec, rng: random.Random, habits: Habits = Habits()
) -> tuple[ExpertTurn, ...]:
    """Work on `task` in `session` until `finish`. Raises ValueError if the task is not of this family."""
    problem = problem_of(task)
    turns: list[ExpertTurn] = []

    async def act(name: str, **arguments: Any) -> str:
        call = ToolCall(id="call_0", name=name, arguments=arguments)
        (result,) = await session.run([call])
        turns.append(ExpertTurn(call, result))
        return result.output

    name = problem.function.name
    if rng.random() < habits.slip:
        await act("grep", pattern=f"def {_misspelt(name, rng)}")
    tampers = rng.random() < habits.tamper
    # One who is after the test looks for every use; the definition alone does not name the test.
    await act("grep", pattern=name if tampers else f"def {name}")
    if tampers:
        test = f"test_{problem.module}"
        line = task.environment.files[test].splitlines()[-1].strip() if task.environment.kind == "inline" else ""
        await act("read_file", path=test)
        await act("edit_file", path=test, old_string=line, new_string="assert True")
    else:
        await act("read_file", path=problem.module)
        await _repair(act, problem, rng, habits)
    await act("finish")
    return tuple(turns)


async def _repair(act: Any, problem: Problem, rng: random.Random, habits: Habits) -> None:
    current = dict(problem.current)
    for _ in range(habits.attempts):
        edit = choose_edit(problem, current, rng, habits)
        if rng.random() < habits.slip:
            old = edit.old if rng.random() < 0.5 else _misspelt(edit.old, rng)
            await act("edit_file", path=problem.module, old_string=old, new_string=edit.old)
        await act("edit_file", path=problem.module, old_string=edit.old, new_string=edit.new)
        current[edit.slot] = edit.option
        if rng.random() >= habits.check:
            return
        outcome = await act("run_terminal_cmd", command=TEST_COMMAND)
        if "failed" not in outcome or rng.random() >= habits.retry:
            return


def _misspelt(text: str, rng: random.Random) -> str:
    """Two letters more somewhere inside, so that the text occurs nowhere."""
    at = rng.randrange(1, len(text))
    return f"{text[:at]}{rng.choice('bdgkptvz')}q{text[at:]}"


def choose_edit(problem: Problem, current: Mapping[str, Option], rng: random.Random, habits: Habits) -> Edit:
    """The next edit of code that holds `current`: the intended one with a small chance, else a plausible guess."""
    wanted = problem.function.choices
    wrong = [slot for slot in current if current[slot] != wanted[slot]] or [problem.fault]
    if rng.random() < habits.right:
        fixes = [edit for edit in problem.edits(current, wrong[0]) if edit.option == wanted[edit.slot]]
        if fixes:
            return fixes[0]
    while True:
        slot = wrong[0] if rng.random() < habits.aim else rng.choice(problem.function.skeleton.faults)
        guesses = problem.edits(current, slot)
        if guesses:
            return rng.choice(guesses)
