"""Find tests of languages with braces without a compiler: mask strings and comments, then match braces.

A misreading does no harm: a sibling counts only after it has failed on the oracle's work.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.grading.canaries.base import Place, Value, ValueKind
from sandbox.grading.canaries.plausible import plausible

MAX_HEADS, MAX_GROUPS = 5000, 500
"""Tests and groups looked at in one file."""
CLOSED_BY = {b"(": b")", b"{": b"}", b"[": b"]"}
BRACKETS = re.compile(rb"[(){}\[\]]")
NUMBER = re.compile(rb"(?<![\w.])\d{1,9}(?:\.\d{1,9})?(?![\w.])")
BOOLEAN = re.compile(rb"\b(true|false)\b")
LITERAL_TEXT = re.compile(
    rb"(?>[\s\d.,\[\]{}:+-]|true\b|false\b|null\b|undefined\b|\w+\s*:|(?P<quote>['\"]) *(?P=quote))*"
)
"""An argument, strings blanked out, in which nothing is computed."""
OBSERVING = re.compile(rb"\$(?:observe|raises|rejects)\(|\bocDiffers\d+\(|\boc_observe!")
"""Calls of tests whose assertions report (`sandbox/grading/observations/`)."""
PLAIN_STRING = re.compile(rb"(['\"])([^'\"\\\n$`]*)\1")


class Syntax:
    """How a language writes what is not code."""

    def __init__(self, *, comments: bytes, strings: bytes) -> None:
        self.tokens = re.compile(rb"(?P<comment>" + comments + rb")|(?P<string>" + strings + rb")", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Masked:
    """A source with strings and comments blanked out (quotes stay), and where the strings are."""

    code: bytes
    strings: tuple[tuple[int, int], ...]


def mask(source: bytes, syntax: Syntax) -> Masked:
    out: list[bytes] = []
    strings: list[tuple[int, int]] = []
    position = 0
    for token in syntax.tokens.finditer(source):
        text = token[0]
        out.append(source[position : token.start()])
        if token["string"] is not None:
            strings.append(token.span())
            out.append(text[:1] + _blank(text[1:-1]) + text[-1:])
        else:
            out.append(_blank(text))
        position = token.end()
    return Masked(b"".join([*out, source[position:]]), tuple(strings))


def _blank(text: bytes) -> bytes:
    return re.sub(rb"[^\n]", b" ", text)


def brackets(code: bytes) -> dict[int, int]:
    """Offset of each opening bracket → offset after the one that closes it. What does not match up is left out."""
    closed: dict[int, int] = {}
    waiting: list[tuple[bytes, int]] = []
    for bracket in BRACKETS.finditer(code):
        if bracket[0] in CLOSED_BY:
            waiting.append((CLOSED_BY[bracket[0]], bracket.start()))
        elif waiting and waiting[-1][0] == bracket[0]:
            closed[waiting.pop()[1]] = bracket.end()
        else:
            waiting.clear()
    return closed


def whole_lines(source: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Offsets of the lines that [start, end) fills, or None when something else stands on them."""
    first = source.rfind(b"\n", 0, start) + 1
    last = source.find(b"\n", end)
    last = len(source) if last < 0 else last + 1
    alone = not source[first:start].strip() and source[end:last].strip() in (b"", b";")
    return (first, last) if alone else None


def arguments_after(code: bytes, bracket: int) -> list[tuple[int, int]]:
    """Spans of the arguments of the call whose opening bracket is at `bracket`."""
    end = brackets(code).get(bracket)
    if end is None:
        return []
    spans, start, depth = [], bracket + 1, 0
    for mark in re.finditer(rb"[(){}\[\],]", code[: end - 1][bracket + 1 :]):
        at = bracket + 1 + mark.start()
        if mark[0] == b"," and depth == 0:
            spans.append((start, at))
            start = at + 1
        depth += {b",": 0}.get(mark[0], 1 if mark[0] in CLOSED_BY else -1)
    return [*spans, (start, end - 1)]


def literal_spans(code: bytes, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [span for span in spans if code[slice(*span)].strip() and LITERAL_TEXT.fullmatch(code, *span)]


def values_in(block: bytes, masked: Masked, demands: Sequence[tuple[int, int]]) -> list[Value]:
    """Numbers, booleans and plain strings inside `demands`."""
    found: list[Value] = []

    def add(start: int, end: int, kind: ValueKind) -> None:
        if any(begin <= start and end <= stop for begin, stop in demands):
            found.append(Value(start, end, kind, 2))

    for match in NUMBER.finditer(masked.code):
        add(match.start(), match.end(), "float" if b"." in match[0] else "int")
    for match in BOOLEAN.finditer(masked.code):
        add(match.start(), match.end(), "bool")
    for start, end in masked.strings:
        if PLAIN_STRING.fullmatch(block, start, end):
            add(start, end, "str")
    return sorted(found, key=lambda value: value.start)


class BraceTests:
    """What the languages with braces have in common as `Language`; each adds how its tests look."""

    syntax: Syntax

    def values(self, block: bytes) -> list[Value]:
        if OBSERVING.search(block):
            return []  # a sibling would report for its test
        masked = mask(block, self.syntax)
        return values_in(block, masked, self._demands(masked.code))

    def other(self, kind: ValueKind, text: str, others: Sequence[str], draw: random.Random) -> str | None:
        """A whole value of the same type and size: one that differs by a letter would show which of the two is real."""
        words = [word for other in others for word in re.findall(r"[A-Za-z]{2,}", other)]
        if kind == "bool":
            return "false" if text == "true" else "true"
        if kind == "int":
            return str(plausible(int(text), words, draw)) if re.fullmatch(r"0|[1-9]\d{0,8}", text) else None
        if kind == "float":
            return repr(plausible(float(text), words, draw)) if re.fullmatch(r"\d{1,9}\.\d{1,9}", text) else None
        quote, body = text[:1], text[1:-1]
        if kind != "str" or "\\" in body:
            return None
        return f"{quote}{plausible(body, words, draw)}{quote}"

    def spelling(self, name: str) -> bytes:
        return rb"\b" + re.escape(name.encode()) + rb"\b"

    def identify(self, place: Place) -> str:
        return "::".join([place.where, *place.names]) + place.suffix

    def where(self, path: str) -> str:
        return path

    def _demands(self, code: bytes) -> list[tuple[int, int]]:
        """Spans of the literals that what is computed must equal; `code` is the block without strings and comments."""
        raise NotImplementedError
