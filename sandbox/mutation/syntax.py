"""One function as concrete syntax with the place of every node in its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import libcst as cst
from libcst.metadata import CodeSpan


@dataclass(frozen=True, slots=True)
class Change:
    """Replace bytes [start, end) of a file's UTF-8 source by `text`."""

    operator: str
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


Found = Iterator[Change]


class Function:
    """A parsed function. Offsets given to changes are those of the whole file."""

    def __init__(self, node: cst.FunctionDef, spans: Mapping[cst.CSTNode, CodeSpan], text: bytes, offset: int) -> None:
        """`text` is what was parsed; it stands `offset` bytes into the file."""
        self.node = node
        self._spans, self._text, self._offset = spans, text, offset

    def nodes(self) -> Iterator[cst.CSTNode]:
        """The defaults of the parameters and everything in the body but the docstring."""
        parameters = self.node.params
        for parameter in (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params):
            if parameter.default is not None:
                yield from _walk(parameter.default)
                yield parameter
        yield from _walk(self.node.body, self.docstring)

    @cached_property
    def docstring(self) -> cst.CSTNode | None:
        first = self.node.body.body[0] if self.node.body.body else None
        if isinstance(first, cst.SimpleStatementLine) and first.body:
            first = first.body[0]
        string = isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString | cst.ConcatenatedString)
        return first if string else None

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        own = self.node.params
        return tuple(p.name.value for p in (*own.posonly_params, *own.params, *own.kwonly_params))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Parameters and names that the body assigns to, in the order in which they appear."""
        seen = list(self.parameters)
        for node in _walk(self.node.body):
            if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name):
                seen.append(node.target.value)
        return tuple(dict.fromkeys(name for name in seen if name not in ("self", "cls", "_")))

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """(start, end) in the file, with the parentheses around an expression."""
        first: cst.CSTNode = node
        last: cst.CSTNode = node
        if left := getattr(node, "lpar", ()):
            first = left[0]
        if right := getattr(node, "rpar", ()):
            last = right[-1]
        start, end = self._spans[first], self._spans[last]
        return start.start + self._offset, end.start + end.length + self._offset

    def text(self, node: cst.CSTNode) -> str:
        start, end = self.span(node)
        return self.between(start, end)

    def between(self, start: int, end: int) -> str:
        """The text of a stretch of the file that lies in this function."""
        return self._text[start - self._offset : end - self._offset].decode()

    def indent(self, node: cst.CSTNode) -> int:
        """Bytes before `node` on its line."""
        start = self.span(node)[0] - self._offset
        return start - (self._text.rfind(b"\n", 0, start) + 1)

    def replace(self, operator: str, node: cst.CSTNode, text: str) -> Change:
        return Change(operator, *self.span(node), text)

    def delete(self, operator: str, node: cst.CSTNode) -> Change:
        """Drop the lines of a statement and the comments directly above it."""
        start, end = (at - self._offset for at in self.span(node))
        start = self._text.rfind(b"\n", 0, start) + 1
        end = self._text.find(b"\n", end) + 1 or len(self._text)
        while (above := self._text.rfind(b"\n", 0, start - 1) + 1) < start:
            if not self._text[above:start].lstrip().startswith(b"#"):
                break
            start = above
        return Change(operator, start + self._offset, end + self._offset, "")

    def swap(self, operator: str, first: cst.CSTNode, second: cst.CSTNode) -> Change:
        """Exchange two stretches; what stands between them stays."""
        start, middle = self.span(first)
        later, end = self.span(second)
        return Change(operator, start, end, self.text(second) + self.between(middle, later) + self.text(first))

    def remove_after(self, operator: str, before: cst.CSTNode, node: cst.CSTNode) -> Change:
        """Drop everything from the end of `before` to the end of `node`."""
        return Change(operator, self.span(before)[1], self.span(node)[1], "")


@dataclass(frozen=True, slots=True)
class Rule:
    """Finds changes at nodes of some kinds."""

    names: tuple[str, ...]
    """Operators that its changes carry."""
    kinds: tuple[type[cst.CSTNode], ...]
    find: Callable[[Function, Any], Found]


def _walk(node: cst.CSTNode, without: cst.CSTNode | None = None) -> Iterator[cst.CSTNode]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current is not without:
            yield current
            waiting.extend(reversed(current.children))
