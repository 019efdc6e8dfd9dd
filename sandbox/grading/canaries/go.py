"""Tests written in Go: `func TestName(t *testing.T)`."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from sandbox.grading.canaries.base import Block, Place
from sandbox.grading.canaries.scanning import (
    BraceTests,
    Syntax,
    arguments_after,
    brackets,
    literal_spans,
    mask,
    whole_lines,
)

HEAD = re.compile(rb"^func (Test\w*)\(\s*\w+ \*testing\.T\s*\)\s*\{", re.MULTILINE)

DIFFERS = re.compile(rb"!=\s*(?P<value>[\w.\"'`+-][^\n{}&|=!<>]*?)\s*(?=\{|\|\|)")
FIELD = re.compile(rb"\b(?:want|expect|expected|exp)\w*:\s*(?P<value>[^,}\n]+)")
EQUAL = re.compile(rb"\b(?:assert|require)\.Equal(\()")


class GoTests(BraceTests):
    """`<directory>::<TestName>[/subtest]`."""

    syntax = Syntax(
        comments=rb"//[^\n]*|/\*.*?(?:\*/|\Z)",
        strings=rb'"(?:[^"\\\n]|\\.)*"|`[^`]*`|\'(?:[^\'\\\n]|\\.)+\'',
    )

    def blocks(self, source: bytes) -> list[Block]:
        code = mask(source, self.syntax).code
        closed = brackets(code)
        found = []
        for head in HEAD.finditer(code):
            end = closed.get(head.end() - 1)
            span = None if end is None else whole_lines(source, head.start(), end)
            if span is not None:
                found.append(Block((head[1].decode(),), *span, head.start(1), head.end(1), 0))
        return found

    def rename(self, name: str, words: Sequence[str], draw: random.Random) -> str:
        return "Test" + "".join(draw.choice(words).capitalize() for _ in range(draw.randint(2, 3)))

    def parse(self, test_id: str) -> Place:
        where, _, name = test_id.partition("::")
        top, slash, rest = name.partition("/")
        return Place(where, (top,), slash + rest)

    def where(self, path: str) -> str:
        return str(PurePosixPath(path).parent)

    def _demands(self, code: bytes) -> list[tuple[int, int]]:
        spans = [match.span("value") for match in (*DIFFERS.finditer(code), *FIELD.finditer(code))]
        for call in EQUAL.finditer(code):
            spans += arguments_after(code, call.start(1))[1:2]
        return literal_spans(code, spans)
