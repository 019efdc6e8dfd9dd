"""Wrong patches made from the oracle's: gutted ones that no test may accept, and mutants that good tests reject."""

from __future__ import annotations

import ast
import difflib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.mutation.operators import Source, is_valid, mutations_of
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec

MAX_MUTANTS = 8
MAX_GUTTED = 2
SWAPS = (
    (r"(?<![-+*/<>=!&|])\+(?![+=])", "-"), (r"(?<![-+*/<>=!&|])-(?![-=>])", "+"), (r"==(?!=)", "!="), (r"!=(?!=)", "=="),
    (r"&&", "||"), (r"\|\|", "&&"), (r"(?<![<=>-])<(?![<=])", "<="), (r"<=", "<"), (r"(?<![<=>-])>(?![>=])", ">="), (r">=", ">"),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"(?<![\w.])0(?![\w.])", "1"), (r"(?<![\w.])([1-9]\d?)(?![\w.])", "0"),
)  # fmt: skip
"""For languages that are not parsed here: expression → replacement, on the lines that the oracle changed."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong patch: the oracle's files with one change, in a few words."""

    what: str
    files: dict[str, str]


def gutted(task: TaskSpec, environments: EnvironmentStore) -> list[Mutant]:
    """The oracle's files with what it changed made useless. No hidden tests may accept these."""
    found: list[Mutant] = []
    for path, text in sorted(task.gold.items()):
        lines = _changed_lines(_before(task, environments, path), text)
        made = list(_gutted_functions(path, text, lines)) if path.endswith(".py") else []
        if not made and lines:
            kept = [line for number, line in enumerate(text.split("\n"), 1) if number not in lines]
            made = [(f"{path}: without the lines that the oracle adds", "\n".join(kept))]
        found += [Mutant(what, {**task.gold, path: new}) for what, new in made if new != text]
    return found[:MAX_GUTTED]


def mutants(task: TaskSpec, environments: EnvironmentStore, *, seed: int = 0) -> list[Mutant]:
    """Up to MAX_MUTANTS small changes of what the oracle changed; the same for the same task and seed."""
    draw = random.Random(f"{task.bundle_hash}:{seed}")
    found: dict[str, Mutant] = {}
    for path, text in sorted(task.gold.items()):
        before = _before(task, environments, path)
        lines = _changed_lines(before, text)
        made = list(_python(path, text, lines) if path.endswith(".py") else _textual(path, text, lines))
        draw.shuffle(made)
        # The nearest to the change first: that is where the tests should look.
        made.sort(key=lambda one: one[0])
        for _, what, new in made:
            if new not in (text, before):
                found.setdefault(f"{path}\n{new}", Mutant(what, {**task.gold, path: new}))
    return list(found.values())[:MAX_MUTANTS]


def _before(task: TaskSpec, environments: EnvironmentStore, path: str) -> str:
    file = environments.pristine(task.environment, path)
    return "" if file is None else file.content.decode("utf-8", "replace")


def _changed_lines(before: str, after: str) -> set[int]:
    """Lines of `after`, from 1, that `before` does not have; where lines only went, those around the gap."""
    matcher = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
    lines: set[int] = set()
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag == "delete":
            lines |= {max(1, start), start + 1}
        elif tag != "equal":
            lines |= set(range(start + 1, end + 1))
    return lines


def _functions(tree: ast.Module, lines: set[int]) -> list[Function]:
    """Outermost functions and methods that hold one of the lines."""
    bodies: list[list[ast.stmt]] = [tree.body]
    found: list[Function] = []
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.ClassDef):
                bodies.append(node.body)
            elif isinstance(node, Function) and lines & set(range(node.lineno, (node.end_lineno or 0) + 1)):
                found.append(node)
    return sorted(found, key=lambda node: node.lineno)


def _gutted_functions(path: str, text: str, lines: set[int]) -> Iterator[tuple[str, str]]:
    try:
        functions = _functions(ast.parse(text), lines)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in functions:
        rows = text.split("\n")
        first, last = node.body[0], node.body[-1]
        if first.lineno == node.lineno or last.end_lineno is None:
            continue  # on one line with its head
        rows[first.lineno - 1 : last.end_lineno] = [" " * first.col_offset + "raise NotImplementedError"]
        yield f"{path}: {node.name} raises NotImplementedError", "\n".join(rows)


def _python(path: str, text: str, lines: set[int]) -> Iterator[tuple[int, str, str]]:
    """(distance, what, new text) of mutations of the changed functions."""
    data = text.encode()
    try:
        source = Source(data)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in _functions(source.tree, lines):
        for mutation in mutations_of(source, node):
            line = data.count(b"\n", 0, mutation.start) + 1
            new = mutation.apply(data)
            if is_valid(data, new):
                distance = min((abs(line - changed) for changed in lines), default=0)
                yield min(distance, 3), f"{path}:{line}: {mutation.operator}", new.decode()


def _textual(path: str, text: str, lines: set[int]) -> Iterator[tuple[int, str, str]]:
    rows = text.split("\n")
    for number in sorted(lines):
        row = rows[number - 1] if number <= len(rows) else ""
        for expression, replacement in SWAPS:
            for match in re.finditer(expression, row[:1000]):
                new = row[: match.start()] + replacement + row[match.end() :]
                what = f"{path}:{number}: {match[0]} becomes {replacement}"
                yield 0, what, "\n".join([*rows[: number - 1], new, *rows[number:]])
