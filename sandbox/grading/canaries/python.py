"""Tests written in Python: functions and methods, for pytest and unittest."""

from __future__ import annotations

import ast
import contextlib
import random
import re
from collections.abc import Iterator, Sequence

from sandbox.grading.canaries.base import Block, Place, Value, ValueKind
from sandbox.grading.canaries.plausible import plausible

NOTE = "_oc_note"
"""What a rewritten test passes an operand through that is compared inside (`observations/python_tests/python.py`)."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
EQUALITIES = frozenset(
    {"assertEqual", "assertEquals", "assert_equal", "assertListEqual", "assertTupleEqual", "assertDictEqual",
     "assertSetEqual", "assertSequenceEqual", "assertMultiLineEqual", "assertIs", "assert_array_equal", "eq_"}
)  # fmt: skip
RAISING = frozenset({"raises", "assertRaises"})
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
        for node, weight in _expectations(function):
            start, end = _span(node, lines)
            kind = _kind(node)
            if kind is not None:
                value = Value(start - shift, end - shift, kind, weight)
                known = found.get((value.start, value.end))
                if known is None or known.weight < weight:
                    found[value.start, value.end] = value
        return [found[key] for key in sorted(found)]

    def other(self, kind: ValueKind, text: str, others: Sequence[str], draw: random.Random) -> str | None:
        match kind:
            case "literal":
                return _other_literal(text, others, draw)
            case "exception":
                return draw.choice([name for name in EXCEPTIONS if name != text and {name, text} not in RELATED])
        return None

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


def _expectations(function: Function) -> Iterator[tuple[ast.expr, int]]:
    """(node, weight) of what a test demands. With another value there, the test contradicts the one it was made from:

    no work passes both, however much it may differ from the oracle where no test looks.
    """
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            for demand in _conjuncts(node.test):
                for side in _equal_sides(demand):
                    yield from _demanded(side, function)
        elif isinstance(node, ast.Call) and _called(node) in EQUALITIES and len(node.args) >= 2:
            for side in _one_literal(node.args[0], node.args[1]):
                yield from _demanded(side, function)
        elif isinstance(node, ast.Call) and _called(node) in RAISING and node.args:
            raised = node.args[0]
            if isinstance(raised, ast.Name) and raised.id in EXCEPTIONS:
                yield raised, 1


def _conjuncts(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in _conjuncts(value)]
    return [test]


def _equal_sides(test: ast.expr) -> list[ast.expr]:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            return _one_literal(left, right)
    return []


def _one_literal(left: ast.expr, right: ast.expr) -> list[ast.expr]:
    """The side that is demanded, when the other is what the work computes; both where either may be."""
    return [a for a, b in ((right, left), (left, right)) if _is_demand(a) and not _is_written_out(_bare(b))]


def _is_demand(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or _is_written_out(_bare(node))


def _bare(node: ast.expr) -> ast.expr:
    """`5.0` of `approx(5.0)`, and what is noted of what a rewritten test notes."""
    if isinstance(node, ast.Call) and _called(node) == NOTE and len(node.args) == 2:
        return _bare(node.args[1])
    if isinstance(node, ast.Call) and _called(node) == "approx" and len(node.args) == 1 and not node.keywords:
        return node.args[0]
    return node


def _is_written_out(node: ast.expr) -> bool:
    return _is_literal(node) or _is_made(node)


def _is_made(node: ast.expr) -> bool:
    """Whether an object is made of literals alone: `Point(4, 6)`."""
    if not isinstance(node, ast.Call) or not _called(node)[:1].isupper() or not (node.args or node.keywords):
        return False
    return all(map(_is_literal, node.args)) and all(word.arg and _is_literal(word.value) for word in node.keywords)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _demanded(side: ast.expr, function: Function) -> Iterator[tuple[ast.expr, int]]:
    """The literal that is demanded; for a name, the literals, table cells or parameters that it stands for."""
    if isinstance(side, ast.Name):
        yield from ((literal, 2) for literal in _meanings(side.id, function))
    else:
        yield _bare(side), 2


def _meanings(name: str, function: Function) -> Iterator[ast.expr]:
    loads = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(function))
    if loads != 1:
        return  # the name is an input as well
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name and _is_literal(value):
                yield value
            case ast.For(target=ast.Tuple(elts=names), iter=ast.List(elts=rows) | ast.Tuple(elts=rows)):
                yield from _column(names, rows, name)
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(args=[names_given, ast.List(elts=rows) | ast.Tuple(elts=rows), *_]) if (
                _called(decorator) == "parametrize"
            ):
                yield from _column(_parameter_names(names_given), rows, name)


def _column(names: Sequence[ast.expr], rows: Sequence[ast.expr], name: str) -> Iterator[ast.expr]:
    wanted = [i for i, n in enumerate(names) if isinstance(n, ast.Name) and n.id == name]
    for row in rows:
        if isinstance(row, ast.Tuple | ast.List) and len(row.elts) == len(names) and len(wanted) == 1:
            cell = row.elts[wanted[0]]
            if _is_literal(cell):
                yield cell


def _parameter_names(node: ast.expr) -> list[ast.expr]:
    """The argument names of `parametrize`, as names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [ast.Name(part.strip()) for part in node.value.split(",")]
    elements = node.elts if isinstance(node, ast.Tuple | ast.List) else []
    return [ast.Name(e.value) for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _kind(node: ast.expr) -> ValueKind | None:
    if isinstance(node, ast.Name):
        return "exception" if node.id in EXCEPTIONS else None
    return "literal" if _is_written_out(node) else None


def _other_literal(text: str, others: Sequence[str], draw: random.Random) -> str | None:
    """Another whole literal, of the type and about the size of `text`; its words are those of `others`."""
    try:
        found = [n.value for other in others for n in ast.walk(ast.parse(other)) if isinstance(n, ast.Constant)]
        words = [word for word in found if isinstance(word, str) and word]
        node = ast.parse(text, mode="eval").body
        made = _other_object(node, words, draw) if isinstance(node, ast.Call) else _other_value(node, words, draw)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return made if "\n" not in text else None


def _other_value(node: ast.expr, words: Sequence[str], draw: random.Random) -> str:
    made = repr(plausible(ast.literal_eval(node), words, draw))
    ast.literal_eval(made)
    return made


def _other_object(call: ast.Call, words: Sequence[str], draw: random.Random) -> str:
    """The call with other arguments throughout, but for those of which there is no other value."""
    before = ast.unparse(call)
    for holder in (*call.keywords, *(ast.keyword(None, value) for value in call.args)):
        with contextlib.suppress(ValueError):
            other = ast.parse(_other_value(holder.value, words, draw), mode="eval").body
            call.args = [other if value is holder.value else value for value in call.args]
            holder.value = other
    made = ast.unparse(call)
    if made == before:
        raise ValueError("no other object")
    return made


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
