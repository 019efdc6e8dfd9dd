"""Tests of JavaScript, Go and Rust whose assertions report instead of decide.

The rewriting is by text: an assertion that compares a computed value with literals becomes a report of the value, and
the literals leave the file. What the tests then still say is inputs. Rewriters find the assertions of one language;
this module puts their edits together. Lines keep their numbers, so that a compiler's complaint names its assertion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox.grading.canaries.base import Block, Language
from sandbox.grading.canaries.insertion import MAX_BLOCK_BYTES, blocks_of
from sandbox.grading.canaries.scanning import Syntax, mask
from sandbox.grading.observations.reports.base import Leaf, Site

MAX_SITES = 2000
TEXT = "(the value as a text)"
SITE, FIRST = "\0site\0", "\0first\0"
"""Stand in what an assertion becomes for its number, and for the first number of its file."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace bytes [start, end) of a file."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Assertion:
    """An assertion that can report. Offsets are bytes of the file."""

    start: int
    end: int
    recorded: str
    """What stands for it while the oracle's work is recorded (with `SITE` and `FIRST`)."""
    delivered: str
    """What stands for it in a grading."""
    want: str
    """What it demands, as written."""
    condition: str = "v0 == v1"
    """What must hold of what is reported and what is demanded."""
    raises: bool = False
    pattern: str = ""
    """`raises`: what the message must match."""
    blanks: tuple[Edit, ...] = ()
    """Literals elsewhere that must leave the file with it."""
    shared: str = ""
    """Assertions of the same non-empty name are observed together or not at all: they share `blanks`."""


class Rewriter(Protocol):
    """How assertions of one language are found and written."""

    @property
    def language(self) -> Language: ...

    @property
    def syntax(self) -> Syntax: ...

    @property
    def readable(self) -> bool:
        """Whether work may see the text of its tests while they run: `Function.prototype.toString` of what it is given."""
        ...

    def assertions(self, source: bytes, code: bytes, block: Block) -> Iterator[Assertion]:
        """Assertions of one test, in text order. `code` is `source` with strings and comments blanked out."""
        ...

    def emptied(self, block: bytes) -> bytes:
        """What stands for a test whose assertions must not be there, in a file that still compiles."""
        ...

    def support(self, source: bytes, code: bytes, first: int) -> list[Edit]:
        """What makes reports possible in this file, without new lines before its end."""
        ...


@dataclass(frozen=True, slots=True)
class Rewritten:
    text: str
    sites: tuple[Site, ...]
    lines: dict[int, int]
    """Number of a site → its line, from 1."""


def rewrite(
    rewriter: Rewriter,
    path: str,
    text: str,
    *,
    tests: Collection[tuple[str, ...]],
    dropped: Collection[int] = (),
    record: bool,
    first: int = 0,
) -> Rewritten:
    """`text` with the assertions of these tests reporting, but for those numbered in `dropped`."""
    source = text.encode()
    code = mask(source, rewriter.syntax).code
    found: list[tuple[int, Block, Assertion]] = []
    for block in blocks_of(rewriter.language, source):
        if block.names in tests and block.end - block.start <= MAX_BLOCK_BYTES:
            for assertion in rewriter.assertions(source, code, block):
                found.append((first + len(found), block, assertion))
    found = found[:MAX_SITES]
    lost = {assertion.shared for number, _, assertion in found if number in dropped and assertion.shared}
    kept = [item for item in found if item[0] not in dropped and item[2].shared not in lost]
    edits: dict[tuple[int, int], Edit] = {}
    sites: list[Site] = []
    for number, block, assertion in kept:
        new = (
            (assertion.recorded if record else assertion.delivered)
            .replace(SITE, str(number))
            .replace(FIRST, str(first))
        )
        new += "\n" * (source.count(b"\n", assertion.start, assertion.end) - new.count("\n"))
        edits[assertion.start, assertion.end] = Edit(assertion.start, assertion.end, new)
        for blank in () if record else assertion.blanks:
            edits.setdefault((blank.start, blank.end), blank)
        sites.append(site_of(number, path, block, assertion))
    if not sites:
        return Rewritten(text, (), {})
    every = [*edits.values(), *rewriter.support(source, code, first)]
    if not record and rewriter.readable:
        every += _remarks(rewriter, source, {(block.start, block.end) for _, block, _ in kept})
    lines = {number: source.count(b"\n", 0, assertion.start) + 1 for number, _, assertion in kept}
    return Rewritten(applied(source, every).decode(), tuple(sites), lines)


def _remarks(rewriter: Rewriter, source: bytes, blocks: Collection[tuple[int, int]]) -> Iterator[Edit]:
    """What blanks the comments of these tests: they may tell what is expected."""
    for token in rewriter.syntax.tokens.finditer(source):
        if token["comment"] is not None and any(start <= token.start() < end for start, end in blocks):
            yield Edit(*token.span(), "\n" * token[0].count(b"\n") or " ")


def site_of(number: int, path: str, block: Block, assertion: Assertion) -> Site:
    if assertion.raises:
        kinds = (Leaf(observed=False, source=assertion.want),)
        return Site(
            number=number, path=path, test=block.names, kind="raises", condition=assertion.pattern, leaves=kinds
        )
    leaves = (Leaf(observed=True, source=TEXT), Leaf(observed=False, source=assertion.want))
    return Site(number=number, path=path, test=block.names, condition=assertion.condition, leaves=leaves)


def is_text(site: Site) -> bool:
    """Whether a site's values are told as texts of its language."""
    return bool(site.leaves) and site.leaves[0].source == TEXT


def applied(source: bytes, edits: Sequence[Edit]) -> bytes:
    """`source` with these edits, of which none overlaps another (a later one inside an earlier one is left out)."""
    out = bytearray()
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        if edit.start < position:
            continue
        out += source[position : edit.start] + edit.text.encode()
        position = edit.end
    return bytes(out + source[position:])
