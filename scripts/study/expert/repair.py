"""Repairs a bug that was planted in a package, or changes something else at the same place."""

from __future__ import annotations

import difflib
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
    (" is None", " is not None"), ("0", "1"), ("1", "0"), ("if ", "if not "),
)  # fmt: skip
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
    """The oracle's patch as edits of the files that the policy gets. Empty: the bundle does not hold them."""
    before = task.environment.overrides if isinstance(task.environment, BuiltEnvironment) else task.environment.files
    return [edit for path, text in task.gold.items() if path in before for edit in _edits(path, before[path], text)]


def _edits(path: str, before: str, after: str) -> list[Edit]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    found = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        up = down = 0
        while not (text := "".join(old[i - up : j + down])) or before.count(text) != 1:
            grown = up + down
            up, down = up + (i > up), down + (j + down < len(old))
            if up + down == grown:
                return []
        lead, tail = "".join(old[i - up : i]), "".join(old[j : j + down])
        found.append(Edit(path, i + 1, lead + "".join(old[i:j]) + tail, lead + "".join(new[k:m]) + tail))
    return found


def guess(edit: Edit, rng: random.Random) -> Edit | None:
    """Another change of the same lines, which is not the fix. None: nothing in them can be swapped."""
    options = [
        made
        for word, other in SWAPS
        if word in edit.old and (made := edit.old.replace(word, other, 1)) not in (edit.old, edit.new)
    ]
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
        raise ValueError(f"the bundle of {task.id} does not hold the files that its oracle changes")
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
