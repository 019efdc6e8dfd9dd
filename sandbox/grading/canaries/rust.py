"""Tests written in Rust: `#[test] fn name()` of integration test files, in modules or not."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import islice

from sandbox.grading.canaries.base import Block, Place
from sandbox.grading.canaries.scanning import (
    MAX_GROUPS,
    MAX_HEADS,
    BraceTests,
    Syntax,
    arguments_after,
    brackets,
    literal_spans,
    mask,
    whole_lines,
)

HEAD = re.compile(
    rb"^[ \t]*#\[test\]\s{1,40}(?:#\[[^\]\n]{0,200}\]\s+){0,6}+(?:async )?fn (\w+)\(\)[^{;]*\{", re.MULTILINE
)
MODULE = re.compile(rb"\bmod (\w+)\s*\{")

EQUAL = re.compile(rb"\bassert_eq!\s*(\()")


class RustTests(BraceTests):
    """`<path>::<module>::<name>`."""

    syntax = Syntax(
        comments=rb"//[^\n]*|/\*.*?(?:\*/|\Z)",
        strings=rb'"(?:[^"\\]|\\.)*"|(?<![A-Za-z0-9_])b?r(?P<hashes>#*)".*?"(?P=hashes)|\'(?:[^\'\\\n]|\\[^\n]{1,8})\'',
    )

    def blocks(self, source: bytes) -> list[Block]:
        code = mask(source, self.syntax).code
        closed = brackets(code)
        modules = [
            (m.start(), end, m[1].decode())
            for m in islice(MODULE.finditer(code), MAX_GROUPS)
            if (end := closed.get(m.end() - 1))
        ]
        found = []
        for head in islice(HEAD.finditer(code), MAX_HEADS):
            end = closed.get(head.end() - 1)
            start = head.start() + len(head[0]) - len(head[0].lstrip())
            span = None if end is None else whole_lines(source, start, end)
            if span is not None:
                around = [(begin, name) for begin, stop, name in modules if begin < start < stop]
                names = (*(name for _, name in sorted(around)), head[1].decode())
                scope = max((begin for begin, _ in around), default=0)
                found.append(Block(names, *span, head.start(1), head.end(1), scope))
        return found

    def rename(self, name: str, words: Sequence[str], draw: random.Random) -> str:
        return "_".join(draw.choice(words) for _ in range(draw.randint(2, 3)))

    def parse(self, test_id: str) -> Place:
        where, *names = test_id.split("::")
        return Place(where, tuple(names), "")

    def _demands(self, code: bytes) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for call in EQUAL.finditer(code):
            spans += literal_spans(code, arguments_after(code, call.start(1))[:2])
        return spans
