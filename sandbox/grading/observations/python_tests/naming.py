"""Neutral names in delivered Python tests: they may tell what is expected (`TestRoundsHalfEven`, `def half_even():`).

Test functions and files are named anew for each grading (`canaries/insertion.py`). Names that something else may look up stay.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from sandbox.grading.observations.python_tests.own_names import WORD, is_test, looks_up, own_names, test_classes
from sandbox.grading.observations.python_tests.purity import Function
from sandbox.grading.observations.python_tests.trees import walk

NUMBERED = re.compile(r"(?<!\w)([^\W\d]\w*?)(\d+)(?!\w)")
"""A parameter with the number of its row."""


def neutral_names(
    sources: Mapping[str, str], others: Collection[str], *, classes_only: bool = False
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Test modules (path → text) whose own names are neutral, and path → name → new name.

    `others` are texts beside the modules that may use such a name. `classes_only` replaces names of classes of tests alone.
    Raises SyntaxError, ValueError, RecursionError for a file that cannot be read.
    """
    made, renamed = dict(sources), {path: dict[str, str]() for path in sources}
    for path, text in sources.items():
        tree = ast.parse(text)
        beside = (*others, *(other for where, other in sources.items() if where != path))
        elsewhere = {word for other in beside for word in WORD.findall(other)}
        written, classes, found = set(WORD.findall(text)), test_classes(tree), renamed[path]
        for name in own_names(tree, elsewhere):
            if name in classes:
                word = "TestGroup" if name.startswith("Test") else "Group"
            elif classes_only:
                continue
            else:
                word = "name"
            found[name] = _free(word, {*written, *found.values()})
        made[path] = _replaced(text, found)
    return made, renamed


def _replaced(text: str, names: Mapping[str, str]) -> str:
    return WORD.sub(lambda word: names.get(word[0], word[0]), text) if names else text


def renamed_id(test_id: str, renamed: Mapping[str, Mapping[str, str]]) -> str:
    """The id that a test of a renamed class or with renamed parameters has: pytest names a row `rows0` by its parameter."""
    head, bracket, parameters = test_id.partition("[")
    path, *names = head.split("::")
    known = renamed.get(path, {})
    if known:
        parameters = NUMBERED.sub(lambda part: known.get(part[1], part[1]) + part[2], parameters)
    return "::".join([path, *(known.get(name, name) for name in names)]) + bracket + parameters


def neutral_variables(text: str) -> str:
    """A test module whose tests have variables of neutral names."""
    tree = ast.parse(text)
    taken = set(WORD.findall(text))
    changed = False
    for function in _tests(tree):
        names: dict[str, str] = {}
        for name in _variables(function):
            names[name] = _free("value", {*taken, *names.values()})
        for node in walk(function) if names else ():
            if isinstance(node, ast.Name) and node.id in names:
                node.id = names[node.id]
                changed = True
    return ast.unparse(tree) + "\n" if changed else text


def _free(word: str, taken: Collection[str]) -> str:
    number = 1
    while f"{word}{number}" in taken:
        number += 1
    return f"{word}{number}"


def _tests(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node)
        elif isinstance(node, Function) and is_test(node):
            yield node


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Variables of a test that nothing but its own code can look up, in the order of the text."""
    stored: dict[str, None] = {}
    bound: set[str] = set()
    if looks_up(function):
        return []
    for node in walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                stored[name] = None
            case (
                ast.arg(arg=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                bound.add(name)
            case ast.MatchMapping(rest=str(name)):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add(other or name.partition(".")[0])
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                bound |= set(names)
            case ast.Constant(value=str(text)):
                bound |= set(WORD.findall(text))  # a query may name it
            case ast.ClassDef(body=body):
                bound.add(node.name)
                bound |= {part.id for child in body for part in walk(child) if isinstance(part, ast.Name)}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
    return [name for name in stored if name not in bound and not name.startswith("_")]
