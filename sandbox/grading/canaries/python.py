"""Tests written in Python: functions and methods, for pytest and unittest."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence

from sandbox.grading.canaries.base import Block, Place, Value, ValueKind
from sandbox.grading.canaries.literals import other_float, other_int, other_text

Function = ast.FunctionDef | ast.AsyncFunctionDef
EXPECTING = re.compile(r"assert|equal|approx|raises|is_|expect|check|compare", re.IGNORECASE)
EXCEPTIONS = (
    "ValueError",
    "TypeError",
    "KeyError",
    "IndexError",
    "AttributeError",
    "ZeroDivisionError",
    "RuntimeError",
)
RELATED = {frozenset(pair) for pair in (("RuntimeError", "RecursionError"), ("ValueError", "UnicodeError"))}
TEXT = re.compile(r"""(?P<head>[rRbB]{0,2})(?P<quote>['"])(?P<body>[^'"\n]*)(?P=quote)""")


class PythonTests:
    """`path::Class::function[parameters]`."""

    def blocks(self, source: bytes) -> list[Block]:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []
        lines = _line_starts(source)
        return sorted(_blocks(tree.body, (), source, lines), key=lambda block: block.start)

    def values(self, block: bytes) -> list[Value]:
        indent = len(block) - len(block.lstrip(b" \t"))
        # A method stands alone once it is the body of something; that adds one line in front.
        source = b"if 1:\n" + block if indent else block
        shift = len(source) - len(block)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []
        lines = _line_starts(source)
        function = next((n for n in ast.walk(tree) if isinstance(n, Function)), None)
        if function is None:
            return []
        found: dict[tuple[int, int], Value] = {}
        for node, weight in _literals(function):
            start, end = _span(node, lines)
            kind = _kind(node, source[start:end])
            if kind is not None:
                value = Value(start - shift, end - shift, kind, weight)
                known = found.get((value.start, value.end))
                if known is None or known.weight < weight:
                    found[value.start, value.end] = value
        return [found[key] for key in sorted(found)]

    def other(self, kind: ValueKind, text: str, others: Sequence[str], draw: random.Random) -> str | None:
        match kind:
            case "int":
                return other_int(text, others, draw)
            case "float":
                return other_float(text, others, draw)
            case "bool":
                return "False" if text == "True" else "True"
            case "negation":
                return f"not ({text})"
            case "exception":
                return draw.choice([name for name in EXCEPTIONS if name != text and {name, text} not in RELATED])
            case "str":
                match = TEXT.fullmatch(text)
                if match is None:
                    return None
                bodies = [m["body"] for t in others if (m := TEXT.fullmatch(t)) and m["head"] == match["head"]]
                body = other_text(match["body"], bodies, draw)
                return None if body is None else f"{match['head']}{match['quote']}{body}{match['quote']}"

    def rename(self, name: str, words: Sequence[str], draw: random.Random) -> str:
        chosen = [draw.choice(words) for _ in range(draw.randint(2, 3))]
        if name.startswith("test_") or not name.startswith("test"):
            return "_".join(["test", *chosen])
        return "test" + "".join(word.capitalize() for word in chosen)

    def spelling(self, name: str) -> bytes:
        return rb"\b" + re.escape(name.encode()) + rb"\b"

    def parse(self, test_id: str) -> Place:
        head, bracket, parameters = test_id.partition("[")
        where, *names = head.split("::")
        return Place(where, tuple(names), bracket + parameters)

    def identify(self, place: Place) -> str:
        return "::".join([place.where, *place.names]) + place.suffix

    def where(self, path: str) -> str:
        return path


def _blocks(body: list[ast.stmt], inside: tuple[str, ...], source: bytes, lines: list[int]) -> Iterator[Block]:
    scope = lines[body[0].lineno - 1] if body else 0
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _blocks(node.body, (*inside, node.name), source, lines)
        elif isinstance(node, Function) and node.name.lower().startswith("test"):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            assert node.end_lineno is not None
            start, end = lines[first - 1], lines[node.end_lineno]
            head = re.compile(rb"def\s+(" + re.escape(node.name.encode()) + rb")\b")
            name = head.search(source, lines[node.lineno - 1], end)
            if name is not None:
                yield Block((*inside, node.name), start, end, name.start(1), name.end(1), scope)


def _literals(function: Function) -> Iterator[tuple[ast.expr, int]]:
    """(node, weight) of what may be changed in a test: parameters of the test, then its body."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
            for argument in decorator.args[1:2]:
                yield from _constants(argument, 2)
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assert):
                yield from _asserted(node)
            elif isinstance(node, ast.Call) and EXPECTING.search(ast.unparse(node.func)[-60:]):
                for argument in node.args:
                    yield from _constants(argument, 2)
                    if isinstance(argument, ast.Name) and argument.id in EXCEPTIONS:
                        yield argument, 1
        yield from _constants(statement, 1)


def _asserted(node: ast.Assert) -> Iterator[tuple[ast.expr, int]]:
    if isinstance(node.test, ast.Compare):
        for side in (*node.test.comparators, node.test.left):
            yield from _constants(side, 2 if isinstance(side, ast.Constant | ast.List | ast.Tuple | ast.Dict) else 1)
    else:
        yield node.test, 0


def _constants(root: ast.AST, weight: int) -> Iterator[tuple[ast.expr, int]]:
    if isinstance(root, ast.JoinedStr):
        return
    if isinstance(root, ast.Constant):
        yield root, weight
    for child in ast.iter_child_nodes(root):
        yield from _constants(child, weight)


def _kind(node: ast.expr, text: bytes) -> ValueKind | None:
    if not isinstance(node, ast.Constant):
        return "exception" if isinstance(node, ast.Name) and node.id in EXCEPTIONS else "negation"
    if isinstance(node.value, bool):
        return "bool"
    if isinstance(node.value, int):
        return "int"
    if isinstance(node.value, float):
        return "float"
    return "str" if isinstance(node.value, str | bytes) and TEXT.fullmatch(text.decode()) else None


def _span(node: ast.expr, lines: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset


def _line_starts(source: bytes) -> list[int]:
    """Offset of each line as Python's parser counts them, and of the end."""
    starts = [0]
    for match in re.finditer(rb"\r\n|\r|\n", source):
        starts.append(match.end())
    if starts[-1] != len(source):
        starts.append(len(source))
    return starts
