"""Mutation operators: small wrong changes of one place in a function, made in the text so that layout is kept.

Each operator maps an AST node to replacements of a stretch of source. `SWAPS` tables are two-way maps: a swap applied
to its own result gives the original back.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replace bytes [start, end) of a file's UTF-8 source by `text`."""

    operator: str
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def _both_ways(pairs: dict[str, str]) -> dict[str, str]:
    return pairs | {right: left for left, right in pairs.items()}


COMPARISON_SWAPS = _both_ways({"<": "<=", ">": ">=", "==": "!=", "is": "is not", "in": "not in"})
ARITHMETIC_SWAPS = _both_ways({"+": "-", "*": "//", "%": "/", "<<": ">>", "&": "|"})
BOOLEAN_SWAPS = _both_ways({"and": "or"})
NAME_SWAPS = _both_ways({"min": "max", "any": "all"})
METHOD_SWAPS = _both_ways(
    {
        "startswith": "endswith",
        "lstrip": "rstrip",
        "lower": "upper",
        "find": "rfind",
        "split": "rsplit",
        "append": "extend",
    }
)
EXCEPTION_SWAPS = _both_ways({"ValueError": "TypeError", "KeyError": "IndexError"})

_COMPARISONS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Div: "/",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip


class Source:
    """A parsed file: text positions of AST nodes as byte offsets."""

    def __init__(self, source: bytes) -> None:
        """Raises SyntaxError."""
        self.source = source
        self.tree = ast.parse(source)
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        return self.source[self.start(node) : self.end(node)].decode()

    def between(self, left: ast.expr, right: ast.expr, token: str, text: str, operator: str) -> Iterator[Mutation]:
        """Replace the operator `token` that stands between two expressions by `text`."""
        first, last = self.end(left), self.start(right)
        pattern = re.sub(r"\\? ", r"\\s+", re.escape(token))
        found = list(
            re.finditer(pattern.encode(), re.sub(rb"#[^\n]*", lambda m: b" " * len(m[0]), self.source[first:last]))
        )
        if len(found) == 1:
            yield Mutation(operator, first + found[0].start(), first + found[0].end(), text)

    def replace(self, node: ast.expr | ast.stmt, text: str, operator: str) -> Mutation:
        return Mutation(operator, self.start(node), self.end(node), text)


def mutations_of(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Mutation]:
    """Every mutation of the body and the defaults of `function`, in text order. Docstrings are left alone."""
    found: list[Mutation] = []
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    roots: list[ast.AST] = [*body, *function.args.defaults, *(d for d in function.args.kw_defaults if d is not None)]
    for root in roots:
        for node in ast.walk(root):
            found.extend(_mutate(source, node))
    unique = {(m.start, m.end, m.text): m for m in found if source.source[m.start : m.end] != m.text.encode()}
    return [unique[key] for key in sorted(unique)]


def _mutate(source: Source, node: ast.AST) -> Iterator[Mutation]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            token = _COMPARISONS[type(op)]
            yield from source.between(left, right, token, COMPARISON_SWAPS[token], "comparison")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            token = _ARITHMETIC[type(op)]
            yield from source.between(left, right, token, ARITHMETIC_SWAPS[token], "arithmetic")
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in _ARITHMETIC:
            token = _ARITHMETIC[type(op)] + "="
            yield from source.between(target, value, token, ARITHMETIC_SWAPS[token[:-1]] + "=", "arithmetic")
        case ast.BoolOp(op=op, values=[left, right]):
            token = "and" if isinstance(op, ast.And) else "or"
            yield from source.between(left, right, token, BOOLEAN_SWAPS[token], "boolean")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield source.replace(node, source.text(operand), "dropped not")
        case ast.Constant(value=bool() as value):
            yield source.replace(node, str(not value), "constant")
        case ast.Constant(value=int() as value):
            yield source.replace(node, str(value + 1), "off by one")
            if value > 0:
                yield source.replace(node, str(value - 1), "off by one")
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield source.replace(value, "None", "return value")
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.UnaryOp):
            yield source.replace(test, f"not ({source.text(test)})", "negated condition")
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Break() | ast.Continue():
            yield source.replace(node, "pass", "removed statement")
        case ast.Slice():
            for bound in (node.lower, node.upper):
                if bound is not None:
                    yield source.replace(bound, "", "slice bound")
        case ast.Call(func=ast.Name(id=name) as called) if name in NAME_SWAPS:
            yield source.replace(called, NAME_SWAPS[name], "wrong function")
        case ast.Call(func=ast.Attribute(attr=name) as called) if name in METHOD_SWAPS:
            end = source.end(called)
            yield Mutation("wrong function", end - len(name.encode()), end, METHOD_SWAPS[name])
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name) as raised)) if name in EXCEPTION_SWAPS:
            yield source.replace(raised, EXCEPTION_SWAPS[name], "exception type")
        case ast.ExceptHandler(type=ast.Name(id=name) as caught) if name in EXCEPTION_SWAPS:
            yield source.replace(caught, EXCEPTION_SWAPS[name], "exception type")
    match node:
        case ast.Call(args=[first, second]) if not any(isinstance(a, ast.Starred) for a in (first, second)):
            swapped = source.source[source.end(first) : source.start(second)].decode()
            text = source.text(second) + swapped + source.text(first)
            yield Mutation("swapped arguments", source.start(first), source.end(second), text)
        case ast.AugAssign():
            yield source.replace(node, "pass", "removed statement")


def is_valid(before: bytes, after: bytes) -> bool:
    """Whether a mutated source still parses and means something else than the original."""
    try:
        return ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))
    except (SyntaxError, ValueError):
        return False
