"""Tests written in JavaScript and TypeScript: `test("title", …)` and `it("title", …)`, inside `describe` or not."""

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

HEAD = re.compile(rb"(?<![\w.$])(test|it|describe|suite)(\()\s*(?=['\"])")
EXPECT = re.compile(rb"(?<!\.not)\.(?:toBe|toEqual|toStrictEqual|toHaveLength)(\()")
EQUAL = re.compile(rb"\b(?:strictEqual|deepStrictEqual|equal|deepEqual)(\()")
TITLE = re.compile(rb"(['\"])([^'\"\\\n]*)\1")
REGEX = rb"(?<=[(,=:\[!&|?{};\s])/(?![/*\s])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*"


class JavaScriptTests(BraceTests):
    """`<path>::<describe>::<title>`."""

    syntax = Syntax(
        comments=rb"//[^\n]*|/\*.*?(?:\*/|\Z)",
        strings=rb'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`(?:[^`\\]|\\.)*`|' + REGEX,
    )

    def blocks(self, source: bytes) -> list[Block]:
        code = mask(source, self.syntax).code
        closed = brackets(code)
        calls = []
        for head in islice(HEAD.finditer(code), MAX_HEADS):
            title, end = TITLE.match(source, head.end()), closed.get(head.start(2))
            if title is not None and end is not None:
                calls.append((head.start(), end, head[1] in (b"describe", b"suite"), title))
        groups = [(start, end, title) for start, end, group, title in calls if group][:MAX_GROUPS]
        found = []
        for start, end, group, title in calls:
            span = whole_lines(source, start, end)
            if not group and span is not None:
                around = sorted((b, t) for b, stop, t in groups if b < start < stop)
                names = [t[2].decode("utf-8", "replace") for _, t in around]
                scope = around[-1][0] if around else -1
                own = title[2].decode("utf-8", "replace")
                found.append(Block((*names, own), *span, title.start(2), title.end(2), scope))
        return found

    def rename(self, name: str, words: Sequence[str], draw: random.Random) -> str:
        return " ".join(draw.choice(words) for _ in range(draw.randint(2, 4)))

    def spelling(self, name: str) -> bytes:
        return rb"(?<=['\"])" + re.escape(name.encode()) + rb"(?=['\"])"

    def parse(self, test_id: str) -> Place:
        where, *names = test_id.split("::")
        return Place(where, tuple(names), "")

    def _demands(self, code: bytes) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for call in EXPECT.finditer(code):
            spans += arguments_after(code, call.start(1))[:1]
        for call in EQUAL.finditer(code):
            spans += arguments_after(code, call.start(1))[1:2]
        return literal_spans(code, spans)
