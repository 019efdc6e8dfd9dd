"""Repairs a bug that was planted in a package, or changes something else at the same place."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.harness.types import ToolCall
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec
from scripts.study.expert.script import Expert, Script, call

SHOWN_LINES = 40
"""Lines that the expert reads around the bug."""
SWAPS = (
    ("==", "!="), ("<=", "<"), (">=", ">"), ("<", "<="), (">", ">="), ("+", "-"), ("+", "*"),
    ("-", "+"), ("-", "*"), ("*", "+"), ("//", "%"), ("%", "//"),
    (" and ", " or "), (" or ", " and "), ("True", "False"), ("False", "True"), (" not ", " "),
    (" is None", " is not None"), ("0", "1"), ("1", "0"), ("if ", "if not "), ("return None", "return 0"),
    ("return ", "return not "),
)  # fmt: skip
ARGUMENTS = re.compile(r"\b(\w+), (\w+)\b")
MAX_LINES = 60
"""Lines of the longest edit that is demonstrated."""
DEFINITION = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(\w+)")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace lines of a file. `old` occurs once in it."""

    path: str
    line: int
    """First changed line, counted from 1."""
    old: str
    new: str


def fixes(task: TaskSpec) -> list[Edit]:
    """The oracle's patch as one edit for each file that the policy gets. Empty: no edit can make it."""
    before = task.environment.overrides if isinstance(task.environment, BuiltEnvironment) else task.environment.files
    found = [_edit(path, before.get(path, ""), text) for path, text in task.gold.items() if before.get(path) != text]
    return [edit for edit in found if edit is not None] if None not in found else []


def _edit(path: str, before: str, after: str) -> Edit | None:
    """Replace everything from the first to the last changed line, with lines around it until the text occurs once."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    top = _common(old, new)
    bottom = _common(old[top:][::-1], new[top:][::-1])
    up = down = 0
    while not (text := "".join(old[top - up : len(old) - bottom + down])) or before.count(text) != 1:
        grown = up + down
        up, down = min(up + 1, top), min(down + 1, bottom)
        if up + down == grown:
            return None
    if text.count("\n") > MAX_LINES:
        return None
    return Edit(path, top + 1, text, "".join(new[top - up : len(new) - bottom + down]))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Lines that both begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def guess(edit: Edit, rng: random.Random) -> Edit | None:
    """Another change of the same lines, which is not the fix. None: nothing in them can be swapped."""
    made = [edit.old.replace(word, other, 1) for word, other in SWAPS if word in edit.old]
    made.append(ARGUMENTS.sub(r"\2, \1", edit.old, count=1))
    options = [text for text in made if text not in (edit.old, edit.new)]
    return Edit(edit.path, edit.line, edit.old, rng.choice(options)) if options else None


def enclosing(text: str, line: int) -> str:
    """Name of the nearest definition at or above a line; empty at the top of a module."""
    for above in reversed(text.splitlines()[:line]):
        if found := DEFINITION.match(above):
            return found.group(1)
    return ""


def script(task: TaskSpec, expert: Expert) -> Script:
    """Search for the function, read around the bug, edit, finish. Raises ValueError for a task without a known patch."""
    edits = fixes(task)
    if not edits:
        raise ValueError(f"no edit makes the oracle's patch of {task.id}")
    rng = expert.rng(task.id)
    right = rng.random() < expert.accuracy
    chosen = edits if right else [made for edit in edits[:1] if (made := guess(edit, rng)) is not None]
    first = edits[0]
    name = enclosing(_before(task, first.path), first.line)
    calls = [call("grep", pattern=f"def {name}" if name else first.path)]
    start = max(1, first.line - SHOWN_LINES // 2)
    calls.append(call("read_file", path=first.path, offset=start, limit=SHOWN_LINES))
    calls += [call("edit_file", path=edit.path, old_string=edit.old, new_string=edit.new) for edit in chosen]
    calls.append(call("finish"))

    def next_call(outputs: Sequence[str]) -> ToolCall:
        return calls[min(len(outputs), len(calls) - 1)]

    return next_call


def _before(task: TaskSpec, path: str) -> str:
    environment = task.environment
    return (environment.overrides if isinstance(environment, BuiltEnvironment) else environment.files)[path]
