"""Assertions of JavaScript tests: `assert.strictEqual(f(x), literal)`, `expect(f(x)).toEqual(literal)`, and throws."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sandbox.grading.canaries.base import Block
from sandbox.grading.canaries.javascript import JavaScriptTests
from sandbox.grading.canaries.scanning import arguments_after, brackets, literal_spans
from sandbox.grading.observations.brace_tests.braces import SITE, Assertion, Edit
from sandbox.grading.observations.reports.operations import is_tame

SUPPORT = " ".join(
    line.strip()
    for line in (Path(__file__).parents[2] / "runners" / "observe.js").read_text(encoding="utf-8").split("\n")
    if not line.lstrip().startswith("//")
)
CALL = re.compile(
    rb"(?<![\w$])(?:(?P<assert>assert(?:\.strict)?\.(?P<method>strictEqual|deepStrictEqual|equal|deepEqual|throws|rejects))"
    rb"|(?P<bare>(?<!\.)(?:strictEqual|deepStrictEqual))|(?P<expect>(?<!\.)expect))\s*(\()"
)
MATCHER = re.compile(
    rb"\s*\.(?:(?P<wait>resolves|rejects)\s*\.\s*)?(?P<name>toBe|toEqual|toStrictEqual|toHaveLength|toThrow|toThrowError)\s*(\()"
)
MODES = {
    "strictEqual": "s", "toBe": "s", "deepStrictEqual": "d", "toStrictEqual": "d", "toEqual": "e", "deepEqual": "e",
    "equal": "s", "toHaveLength": "n",
}  # fmt: skip
LOOSE = ("equal", "deepEqual")
NAME = re.compile(rb"\s*([A-Za-z_$][\w$]*)\s*")
MEMBER = re.compile(rb"\s*[A-Za-z_$][\w$]*\.([A-Za-z_$][\w$]*)\s*")
CLASS = re.compile(rb"\s*[A-Z][\w$.]*\s*")
REGEX = re.compile(rb"\s*/((?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/([a-z]*)\s*")
STRING = re.compile(rb"\s*(['\"])([^'\"\\\n]*)\1\s*")
DIRECTIVE = re.compile(rb"(?:#![^\n]*\n)?(?:\s|//[^\n]*\n|/\*.*?\*/)*(['\"])use strict\1;?", re.DOTALL)
ODD = re.compile(rb"\(\?<|\\[cpPk]|\[\^?\]|\$\$")
"""What JavaScript's regular expressions read differently."""


class JavaScriptRewriter:
    language = JavaScriptTests()
    syntax = JavaScriptTests.syntax
    readable = True

    def assertions(self, source: bytes, code: bytes, block: Block) -> Iterator[Assertion]:
        closed = brackets(code[block.start : block.end])
        strict = re.search(rb"assert/strict|\.strict\b|\bstrict\s*:", source) is not None
        position = block.start
        while (call := CALL.search(code, position, block.end)) is not None:
            position = call.end()
            end = closed.get(call.end() - 1 - block.start)
            if end is None:
                continue
            arguments = arguments_after(code, call.end() - 1)
            found = (
                self._expect(source, code, block, call, block.start + end, arguments)
                if call["expect"]
                else self._assert(source, code, call, block.start + end, arguments, strict)
            )
            if found is not None:
                position = found.end
                yield found

    def emptied(self, block: bytes) -> bytes:
        return b""

    def support(self, source: bytes, code: bytes, first: int) -> list[Edit]:
        match = DIRECTIVE.match(source)
        at = match.end() if match else source.find(b"\n") + 1 if source.startswith(b"#!") else 0
        return [Edit(at, at, f"; {SUPPORT} " if match else f"{SUPPORT} ")]

    def _assert(
        self,
        source: bytes,
        code: bytes,
        call: re.Match[bytes],
        end: int,
        arguments: list[tuple[int, int]],
        strict: bool,
    ) -> Assertion | None:
        method = (call["method"] or call["bare"]).decode()
        if method in ("throws", "rejects"):
            waits = method == "rejects"
            if not arguments or (waits and not _awaited(code, call.start())):
                return None
            return self._raises(source, code, call.start(), end, arguments[0], arguments[1:], "assert", waits)
        if len(arguments) < 2:
            return None
        if strict:
            method = {"equal": "strictEqual", "deepEqual": "deepStrictEqual"}.get(method, method)
        return self._equal(
            source, code, call.start(), end, arguments[0], arguments[1], MODES[method], loose=method in LOOSE
        )

    def _expect(
        self,
        source: bytes,
        code: bytes,
        block: Block,
        call: re.Match[bytes],
        end: int,
        arguments: list[tuple[int, int]],
    ) -> Assertion | None:
        matcher = MATCHER.match(code, end, block.end)
        if matcher is None or len(arguments) != 1:
            return None
        demands = arguments_after(code, matcher.end() - 1)
        stop = brackets(code[matcher.end() - 1 : block.end]).get(0)
        if stop is None:
            return None
        stop += matcher.end() - 1
        name, wait = matcher["name"].decode(), (matcher["wait"] or b"").decode()
        if wait and not _awaited(code, call.start()):
            return None
        if name.startswith("toThrow"):
            if wait == "resolves":
                return None
            demands = [span for span in demands if code[slice(*span)].strip()]
            return self._raises(source, code, call.start(), stop, arguments[0], demands, "expect", bool(wait))
        if len(demands) != 1 or wait == "rejects":
            return None
        return self._equal(source, code, call.start(), stop, arguments[0], demands[0], MODES[name], bool(wait))

    def _equal(
        self,
        source: bytes,
        code: bytes,
        start: int,
        end: int,
        got: tuple[int, int],
        want: tuple[int, int],
        mode: str,
        waits: bool = False,
        loose: bool = False,
    ) -> Assertion | None:
        if literal_spans(code, [got]):
            got, want = want, got
        if literal_spans(code, [got]):
            return None
        blanks: tuple[Edit, ...] = ()
        shared = ""
        if not literal_spans(code, [want]):
            flow = flowing(code, want)
            if flow is None:
                return None
            shared, blanks = flow
        value, demanded = _text(source, got), _text(source, want)
        head = f"$observe({SITE}, '{mode}', {'await ' if waits else ''}({value})"
        condition = "loosely(v0, v1)" if loose else "v0 == v1"
        return Assertion(
            start, end, f"{head}, ({demanded}))", f"{head})", demanded.strip(), condition, blanks=blanks, shared=shared
        )

    def _raises(
        self,
        source: bytes,
        code: bytes,
        start: int,
        end: int,
        call: tuple[int, int],
        demands: list[tuple[int, int]],
        style: str,
        waits: bool,
    ) -> Assertion | None:
        pattern, kind = "", "Object"
        if demands:
            text = source[slice(*demands[0])]
            if CLASS.fullmatch(text):
                kind = text.decode().strip()
            elif (regex := REGEX.fullmatch(text)) and regex[2] in (b"", b"u") and not ODD.search(regex[1]):
                pattern = regex[1].decode().replace("\\/", "/")
            elif style == "expect" and (string := STRING.fullmatch(text)):
                pattern = re.escape(string[2].decode())
            else:
                return None
            if pattern and not is_tame(pattern):
                return None
        function = "$rejects" if waits else "$raises"
        head = f"{function}({SITE}, '{'s' if style == 'assert' else 'm'}', ({_text(source, call)})"
        return Assertion(
            start, end, f"{head}, {kind})", f"{head})", kind,
            raises=True, pattern=pattern,
        )  # fmt: skip


def _text(source: bytes, span: tuple[int, int]) -> str:
    """As written, also its line ends: a comment may stand before one."""
    return source[slice(*span)].decode("utf-8", "replace")


def _awaited(code: bytes, start: int) -> bool:
    return code[:start].rstrip().endswith(b"await")


def flowing(code: bytes, want: tuple[int, int]) -> tuple[str, tuple[Edit, ...]] | None:
    """Where the literals come from that a demand names, if nothing else uses them: (the name, what blanks them)."""
    text = code[slice(*want)]
    if (name := NAME.fullmatch(text)) is not None:
        word = name[1]
    elif (member := MEMBER.fullmatch(text)) is not None:
        word = member[1]
    else:
        return None
    edits: list[Edit] = []
    pattern = re.compile(rb"(?<![\w$])" + re.escape(word) + rb"(?![\w$])")
    for use in pattern.finditer(code):
        after = code[use.end() : use.end() + 3].lstrip()
        before = code[: use.start()].rstrip()
        if after.startswith(b":") or (after.startswith(b"=") and not after.startswith((b"==", b"=>"))):
            span = value_after(code, code.index(b":" if after.startswith(b":") else b"=", use.end()) + 1)
            if not literal_spans(code, [span]):
                return None
            edits.append(Edit(*_trimmed(code, span), "undefined"))
        elif column := rows_of(code, use.start()):
            edits += column
        elif not (is_demand(code, use.start(), use.end()) or before.endswith((b"{", b","))):
            return None
    return (word.decode(), tuple(edits)) if edits else None


def is_demand(code: bytes, start: int, end: int) -> bool:
    """Whether a name stands alone as the last argument of an equality, or is the pattern of an object's parameter."""
    head = code[max(0, start - 200) : start]
    tail = code[end : end + 20].lstrip()
    head = re.sub(rb"[\w$]+\.$", b"", head).rstrip()
    equality = re.search(rb"(?:strictEqual|deepStrictEqual|equal|deepEqual)\s*\((?:[^;\n]*),$", head)
    matcher = re.search(rb"\.(?:toBe|toEqual|toStrictEqual|toHaveLength)\s*\($", head)
    return tail.startswith((b")", b",")) and bool(equality or matcher)


def value_after(code: bytes, at: int) -> tuple[int, int]:
    """The span of the expression at `at`, up to the comma, bracket, semicolon or line's end that ends it."""
    depth = 0
    for mark in re.finditer(rb"[(){}\[\],;\n]", code[at : at + 4000]):
        if mark[0] in b"([{":
            depth += 1
        elif mark[0] in b")]}":
            if depth == 0:
                return at, at + mark.start()
            depth -= 1
        elif depth == 0 and mark[0] in b",;\n":
            return at, at + mark.start()
    return at, at


def rows_of(code: bytes, at: int) -> list[Edit]:
    """What blanks a column of `for (const [a, b, want] of [[1, 2, 3], …])` or `.forEach(([a, b, want]) => …)`."""
    opening = code.rfind(b"[", 0, at)
    if opening < 0 or b"]" in code[opening:at] or b"\n" in code[opening:at]:
        return []
    closing = brackets(code[opening : opening + 400]).get(0)
    if closing is None:
        return []
    names = arguments_after(code, opening)
    index = next((i for i, span in enumerate(names) if span[0] <= at < span[1]), None)
    after = re.compile(rb"\s+of\s+(\[)").match(code, opening + closing)
    if index is None:
        return []
    if after is not None:
        table = after.start(1)
    else:
        before = re.search(rb"(\])\s*\.forEach\(\s*\(\s*$", code[:opening])
        if before is None:
            return []
        pairs = {end: start for start, end in brackets(code).items()}
        if (table_start := pairs.get(before.end(1))) is None:
            return []
        table = table_start
    edits = []
    for row in arguments_after(code, table):
        start, end = _trimmed(code, row)
        if start == end:
            continue
        cells = arguments_after(code, start) if code[start : start + 1] == b"[" else []
        if index >= len(cells) or not literal_spans(code, [cells[index]]):
            return []
        edits.append(Edit(*_trimmed(code, cells[index]), "undefined"))
    return edits


def _trimmed(code: bytes, span: tuple[int, int]) -> tuple[int, int]:
    text = code[slice(*span)]
    return span[0] + len(text) - len(text.lstrip()), span[1] - (len(text) - len(text.rstrip()))
