"""Neutral names in delivered Python tests: those of classes and variables may tell what is expected (`TestRoundsHalfEven`).

Test functions and files are named anew for each grading (`canaries/insertion.py`). Names that something else may look up stay.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.trees import walk

LOOKS_UP = frozenset(
    {"locals", "vars", "dir", "globals", "eval", "exec", "compile", "_getframe", "currentframe", "stack"}
)
WORD = re.compile(r"[^\W\d]\w*")


def neutral_classes(
    sources: Mapping[str, str], others: Collection[str]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Test modules (path → text) whose classes of tests have neutral names, and path → name → new name.

    `others` are texts beside the modules that may use such a name. Raises SyntaxError, ValueError, RecursionError for a file that
    cannot be read.
    """
    made, renamed = dict(sources), {path: dict[str, str]() for path in sources}
    for path, text in sources.items():
        tree = ast.parse(text)
        beside = (*others, *(other for where, other in sources.items() if where != path))
        elsewhere = {word for other in beside for word in WORD.findall(other)}
        written, known = Counter(WORD.findall(text)), Counter(_identifiers(tree))
        found = renamed[path]
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or not any(map(_is_test, node.body)):
                continue
            if node.name not in elsewhere and written[node.name] == known[node.name]:
                word = "TestGroup" if node.name.startswith("Test") else "Group"
                found[node.name] = _free(word, {*written, *found.values()})
        made[path] = _replaced(text, found)
    return made, renamed


def _replaced(text: str, names: Mapping[str, str]) -> str:
    return WORD.sub(lambda word: names.get(word[0], word[0]), text) if names else text


def renamed_id(test_id: str, renamed: Mapping[str, Mapping[str, str]]) -> str:
    """The id that a test of a renamed class has."""
    head, bracket, parameters = test_id.partition("[")
    path, *names = head.split("::")
    known = renamed.get(path, {})
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


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, Function) and node.name.lower().startswith("test")


def _tests(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node)
        elif isinstance(node, Function) and _is_test(node):
            yield node


def _identifiers(tree: ast.Module) -> Iterator[str]:
    """Names that are loaded, stored or defined as classes; whatever else is a word of the text is counted by nobody."""
    for node in walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.ClassDef):
            yield node.name


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Variables of a test that nothing but its own code can look up, in the order of the text."""
    stored: dict[str, None] = {}
    bound: set[str] = set()
    for node in walk(function):
        match node:
            case ast.Call() if called(node) in LOOKS_UP:
                return []
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
