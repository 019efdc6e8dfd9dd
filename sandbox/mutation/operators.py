"""Mutations of a function: what to replace in a file's text so that its behaviour is a little wrong.

The rules (`rules.py`, `block_rules.py`) look at the concrete syntax tree of one function and give stretches of text to
replace, so that layout and comments stay. Most small mutations mean something else than the original; whether anybody
notices is for the tests to say.
"""

from __future__ import annotations

import ast

import libcst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from sandbox.mutation.block_rules import BLOCK_RULES
from sandbox.mutation.rules import RULES
from sandbox.mutation.syntax import Change, Function

__all__ = ["OPERATORS", "Change", "Mutation", "Source", "is_valid", "mutations_of"]

Mutation = Change
OPERATORS: tuple[str, ...] = tuple(sorted({name for rule in (*RULES, *BLOCK_RULES) for name in rule.names}))


class Source:
    """A parsed file."""

    def __init__(self, source: bytes) -> None:
        """Raises SyntaxError."""
        self.source = source
        self.tree = ast.parse(source)
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function | None:
        """The concrete syntax of one of the file's functions; None for what cannot be read, such as another encoding.

        Only the function's own lines are parsed: positions in a whole file cost a walk over all of it.
        """
        assert node.end_lineno is not None
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        start, end = self._lines[first - 1], self._lines[node.end_lineno]
        head = b"class _:\n" if node.col_offset else b""
        try:
            module = libcst.parse_module((head + self.source[start:end]).decode())
        except (libcst.ParserSyntaxError, UnicodeDecodeError, RecursionError):
            return None
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        spans = wrapper.resolve(ByteSpanPositionProvider)
        inner = module.body[0].body.body[0] if head else module.body[0]  # type: ignore[union-attr]
        if not isinstance(inner, libcst.FunctionDef):
            return None  # several statements on its line
        return Function(inner, spans, head + self.source[start:end], start - len(head))


def mutations_of(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Mutation]:
    """Every mutation of the body and the defaults of `function`, in text order. Docstrings are left alone."""
    parsed = source.function(function)
    if parsed is None:
        return []
    found: list[Mutation] = []
    for node in parsed.nodes():
        for rule in (*RULES, *BLOCK_RULES):
            if isinstance(node, rule.kinds):
                found.extend(rule.find(parsed, node))
    here = {(m.start, m.end, m.text): m for m in found if source.source[m.start : m.end] != m.text.encode()}
    return [here[key] for key in sorted(here)]


def is_valid(before: bytes, after: bytes) -> bool:
    """Whether a mutated source still parses and means something else than the original."""
    try:
        return ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))
    except (SyntaxError, ValueError, RecursionError):
        return False
