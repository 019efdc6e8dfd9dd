"""A JavaScript test file taken apart into statements, those inside its groups and hooks too, without a parser.

A misreading does no harm: what is made of the statements counts only after a run of the oracle's work has agreed with it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from sandbox.grading.canaries.insertion import blocks_of
from sandbox.grading.canaries.javascript import JavaScriptTests
from sandbox.grading.canaries.scanning import Masked, brackets, mask

Names = tuple[str, ...]
Kind = Literal["import", "value", "function", "group", "hook", "test", "other"]

MAX_STATEMENTS = 5000
MARK = re.compile(rb"[(){}\[\];\n]")
GROUP = re.compile(rb"(?:describe|suite)(?:\.(?:only|skip|concurrent|sequential))?\s*\(")
HOOK = re.compile(rb"(?:[\w$]+\.)?(?:before|after|beforeEach|afterEach|beforeAll|afterAll)\s*\(")
DECLARATION = re.compile(
    rb"(?:export\s+(?:default\s+)?)?(?:(?P<variable>const|let|var)\b|(?:async\s+)?function\b\s*\*?\s*(?P<function>[\w$]+)"
    rb"|class\s+(?P<class>[\w$]+))\s*"
)
IMPORT = re.compile(rb"import\b(?!\s*\()")
LOADED = re.compile(rb"=\s*(?:await\s+)?(?:require|import)\s*\(")
LAMBDA = re.compile(rb"=\s*(?:async\b\s*)?(?:function\b|(?:\([^;\n]*\)|[\w$]+)\s*=>)")
COMPOUND = re.compile(rb"(?:export\s+)?(?:async\s+)?(?:function|class|if|for|while|try|switch|do)\b")
HEADLESS = re.compile(rb"(?:if|for(?:\s+await)?|while)\s*\Z")
WAITS = re.compile(
    rb"(?:[,=+\-*/%&|^<>?:.!~]|\b(?:else|do|in|of|new|typeof|await|extends|const|let|var|async|function|class|import|export"
    rb"|from|default|throw|try|finally))\Z"
)
GOES_ON = re.compile(rb"\s*(?:[.?:+\-*/%&|^<>=,(\[`]|(?:else|catch|finally|instanceof|in|of|extends|as|from)\b)")
AFTER_BRACE = re.compile(rb"\s*(?:else|catch|finally|while)\b")
WORD = re.compile(rb"(?<![\w$])(?<!(?<!\.)\.)[A-Za-z_$][\w$]*")
ANY_WORD = re.compile(rb"(?<![\w$])[A-Za-z_$][\w$]*")
INSERTED = re.compile(rb"\$\{([^}]*)\}")
FROM = re.compile(rb"(?:\bfrom|\bimport)\s*(['\"])([^'\"\\\n]+)\1")
REQUIRED = re.compile(rb"(\{[^}]*\}|[\w$]+)\s*=\s*(?:await\s+)?(?:require|import)\s*\(\s*(['\"])([^'\"\\\n]+)\2")
NAMED = re.compile(rb"\s*[A-Za-z_$][\w$]*\s*")
RENAMES = re.compile(rb"\bas\b|:|\*")
TESTS = JavaScriptTests()


@dataclass(frozen=True, slots=True)
class Load:
    """A module that an `import` loads, and what it is called here."""

    module: str
    names: frozenset[bytes]
    plain: bool
    """Whether these are the names that the module gives away."""


@dataclass(frozen=True, slots=True)
class Part:
    """The value that a statement gives one of its names."""

    name: bytes
    start: int
    end: int


@dataclass(frozen=True)
class Statement:
    """Offsets are bytes of the file."""

    start: int
    end: int
    kind: Kind
    said: bytes
    """Its code without strings and comments, and what its templates insert. Of a group or hook: what stands around its
    body, whose statements follow it."""
    source: bytes
    """The same as it is written."""
    declares: frozenset[bytes] = frozenset()
    tests: tuple[Names, ...] = ()
    """Tests within."""
    loads: tuple[Load, ...] = ()
    parts: tuple[Part, ...] = ()
    """Of `const a = 1, b = 2`: the values of single names, where it declares several."""

    @cached_property
    def words(self) -> frozenset[bytes]:
        """Names that it mentions, but for those of fields."""
        return frozenset(WORD.findall(self.said))

    def idle(self, words: Collection[bytes]) -> list[Part]:
        """Values of names that are not among `words`."""
        return [part for part in self.parts if part.name not in words]

    def uses(self, words: Collection[bytes]) -> frozenset[bytes]:
        """Names that it mentions for those of its own that are among `words`."""
        idle = self.idle(words)
        if not idle:
            return self.words - self.declares
        said = bytearray(self.said)
        for part in idle:
            said[part.start - self.start : part.end - self.start] = b" " * (part.end - part.start)
        return frozenset(WORD.findall(said)) - self.declares

    @cached_property
    def fields(self) -> frozenset[bytes]:
        """All names that it mentions."""
        return frozenset(ANY_WORD.findall(self.said))


def statements(source: bytes) -> list[Statement]:
    """Every statement in text order; those inside a group or hook follow it."""
    masked = mask(source, TESTS.syntax)
    reader = _Reader(source, masked, brackets(masked.code))
    return list(reader.read(0, len(source)))


class _Reader:
    def __init__(self, source: bytes, masked: Masked, closed: dict[int, int]) -> None:
        self._source, self._code, self._closed = source, masked.code, closed
        self._templates = [span for span in masked.strings if source[span[0] : span[0] + 1] == b"`"]
        self._blocks = blocks_of(TESTS, source)
        self._starts = [block.start for block in self._blocks]
        self._left = MAX_STATEMENTS

    def read(self, start: int, end: int) -> Iterator[Statement]:
        for begin, stop in self._spans(start, end):
            self._left -= 1
            yield from self._statement(begin, stop)

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        code, begin = self._code, start
        while begin < end:
            if code[begin : begin + 1] in (b" ", b"\t", b"\r", b"\n", b";"):
                begin += 1
                continue
            stop = self._end(begin, end) if self._left > 1 else end
            yield begin, stop
            begin = stop

    def _end(self, begin: int, end: int) -> int:
        code, position, compound = self._code, begin, COMPOUND.match(self._code, begin) is not None
        while (mark := MARK.search(code, position, end)) is not None:
            if mark[0] == b";":
                return mark.end()
            if mark[0] == b"\n" and self._is_over(begin, mark.start(), end, compound):
                return mark.start()
            position = min(self._closed.get(mark.start(), mark.end()), end)
            if mark[0] == b"(" and HEADLESS.search(code, max(begin, mark.start() - 12), mark.start()):
                gap = re.compile(rb"\s*").match(code, position, end)
                position = gap.end() if gap else position  # the body of `if (…)` may stand on the next line
        return end

    def _is_over(self, begin: int, at: int, end: int, compound: bool) -> bool:
        """Whether a statement that began at `begin` ends with the line that ends at `at`."""
        before = self._code[max(begin, at - 40) : at].rstrip()
        after = self._code[at : min(end, at + 400)]
        if compound and before.endswith(b"}"):
            return AFTER_BRACE.match(after) is None
        return WAITS.search(before) is None and GOES_ON.match(after) is None

    def _statement(self, start: int, end: int) -> Iterator[Statement]:
        near = self._blocks[max(0, bisect_right(self._starts, start) - 1) : bisect_left(self._starts, end)]
        tests = tuple(b.names for b in near if start < b.end and b.start < end)
        if any(b.start <= start and end <= b.end for b in near):
            yield Statement(start, end, "test", self._said(start, end), self._source[start:end], tests=tests)
            return
        group = GROUP.match(self._code, start, end)
        head = group or HOOK.match(self._code, start, end)
        if head is not None and (body := self._body(start, head.end(), end)) is not None:
            said = self._said(start, body[0]) + self._said(body[1], end)
            around = self._source[start : body[0]] + self._source[body[1] : end]
            yield Statement(start, end, "group" if group else "hook", said, around, tests=tests)
            yield from self.read(*body)
            return
        said, source = self._said(start, end), self._source[start:end]
        kind, declares, parts = self._kind(start, end)
        loads = tuple(_loads(source, declares)) if kind == "import" else ()
        yield Statement(start, end, kind, said, source, declares, tests, loads, parts)

    def _said(self, start: int, end: int) -> bytes:
        inserted = [
            part for begin, stop in self._templates if start <= begin < end for part in INSERTED.findall(self._source[begin:stop])
        ]  # fmt: skip
        return b" ".join([self._code[start:end], *inserted])

    def _body(self, start: int, position: int, end: int) -> tuple[int, int] | None:
        """Where the statements of a group or hook stand, whose arguments begin at `position`."""
        found = None
        while (mark := MARK.search(self._code, position, end)) is not None:
            before = self._code[max(start, mark.start() - 8) : mark.start()].rstrip()
            closing = self._closed.get(mark.start())
            if mark[0] == b"{" and before.endswith((b"=>", b")")) and closing is not None:
                found = (mark.end(), closing - 1)
            position = closing or mark.end()
        return found

    def _kind(self, start: int, end: int) -> tuple[Kind, frozenset[bytes], tuple[Part, ...]]:
        code = self._code[start:end]
        if IMPORT.match(code):
            return "import", frozenset(WORD.findall(code)) - {b"import", b"from", b"as", b"type"}, ()
        match = DECLARATION.match(code)
        if match is None:
            return "other", frozenset(), ()
        if match["variable"] is None:
            return "function", frozenset({match["function"] or match["class"]}), ()
        declared = list(self._declared(start + match.end(), end))
        names = frozenset(name for pattern, _, _ in declared for name in _bound(pattern))
        single = (Part(p.strip(), begin, stop) for p, begin, stop in declared if NAMED.fullmatch(p) and begin < stop)
        parts = tuple(single) if len(declared) > 1 else ()
        kind: Kind = "import" if LOADED.search(code[:400]) else "function" if LAMBDA.search(code[:400]) else "value"
        return kind, names, parts

    def _declared(self, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
        """Patterns of `const a = 1, { b, c: d } = e`, from behind the keyword, and where their values stand."""
        code, begin, value = self._code, position, -1
        skipped = position
        for mark in re.finditer(rb"[(){}\[\],=;]", code[position:end]):
            at = position + mark.start()
            if at < skipped:
                continue
            if mark[0] in b"([{":
                skipped = min(self._closed.get(at, at + 1), end)
            elif mark[0] == b"=" and value < 0:
                value = at + 1
            elif mark[0] in b",;":
                yield self._code[begin : value - 1 if value >= 0 else at], max(value, 0), at if value >= 0 else 0
                begin, value = at + 1, -1
                if mark[0] == b";":
                    return
        yield self._code[begin : value - 1 if value >= 0 else end], max(value, 0), end if value >= 0 else 0


def _bound(pattern: bytes) -> Iterator[bytes]:
    for word in WORD.finditer(pattern):
        if not pattern[word.end() :].lstrip().startswith(b":") or b"{" not in pattern:
            yield word[0]


def _loads(source: bytes, declares: frozenset[bytes]) -> Iterator[Load]:
    if (match := FROM.search(source)) is not None and IMPORT.match(source):
        plain = b"{" in source and RENAMES.search(source[: match.start()]) is None
        yield Load(match[2].decode("utf-8", "replace"), declares, plain)
    for match in REQUIRED.finditer(source):
        plain = match[1].startswith(b"{") and RENAMES.search(match[1]) is None
        yield Load(match[3].decode("utf-8", "replace"), frozenset(_bound(match[1])), plain)
