"""Assertions of Rust tests: `assert_eq!(f(x), literal)` of integration tests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from sandbox.grading.canaries.base import Block
from sandbox.grading.canaries.rust import RustTests
from sandbox.grading.canaries.scanning import arguments_after, brackets
from sandbox.grading.observations.brace_tests.braces import SITE, Assertion, Edit
from sandbox.grading.observations.brace_tests.items import Item
from sandbox.grading.observations.brace_tests.rust_items import in_tests, items, mended

EQUAL = re.compile(rb"(?<!\w)assert_eq!\s*(\()")
CONSTANT = re.compile(
    rb"(?:\b(?:Some|Ok|Err|vec!|String::from|true|false|None)(?!\w)|\.to_string\(\)|\.to_owned\(\)|\.into\(\)|\[\.\.\]"
    rb"|(?<![\w.])\d[\w.]*|\"[^\"]*\"|'[^'\n]*'|[\s(),\[\]&+-])+"
)
"""An expression in which nothing is computed, strings blanked out."""
LEAF = re.compile(rb"\"[^\"]*\"|'[^'\n]*'|(?<![\w.])\d[\w.]*|\btrue\b")
SUFFIX = re.compile(rb"(?:[iuf](?:8|16|32|64|128|size))$")
INNER = re.compile(rb"(?:\s*(?:#!\[[^\]\n]*\]|//![^\n]*\n))*")
ASSERTS = re.compile(
    rb"\b\w*(?:assert|check|expect|ensure|verify|require|snapshot|panic|bail)\w*!|\b(?:unreachable|todo|unimplemented)!"
    rb"|(?<![\w.])assert_\w+\s*\(|(?<!\w)(?:exit|abort|resume_unwind|panic_any)\s*\("
)
"""What a test or helper decides by, if it does not report."""
EXPECTS = re.compile(rb"\.expect(?:_err)?\s*\(\s*(?P<text>\"[^\"]*\")\s*,?\s*\)")
ENDS = re.compile(rb"#\[should_panic|->\s*(?:\w+::)*Result\b")
"""How a test may end otherwise."""
SUPPORT = (
    "#[allow(unused_macros)] macro_rules! oc_observe { "
    "($site:expr, $blank:expr, $($value:expr),+) => {{ let mut line = ::std::string::String::new(); "
    "$( match &$value { value => { if false { let _ = *value == $blank; } "
    'let told = ::std::format!("{:?}", value); let mut text = ::std::string::String::new(); '
    'for (place, part) in told.split("-0.0").enumerate() { if place > 0 { text.push_str('
    "if told.contains('\"') || text.ends_with(char::is_alphanumeric) || part.starts_with(|c: char| c.is_ascii_digit()) "
    '{ "-0.0" } else { "0.0" }); } text.push_str(part); } line.push(\' \'); '
    "for byte in text.bytes() { line.push_str(&::std::format!(\"{:02x}\", byte)); } line.push('.'); } } )+ "
    '::std::println!("\\n\\u{2}observed {}{}", $site, line); }} } '
)
"""Values are told as `{:?}` does, but for the sign of a zero, which `==` does not see; texts may hold one that counts."""


class RustRewriter:
    language = RustTests()
    syntax = RustTests.syntax
    readable = False
    apart = True

    def assertions(self, source: bytes, code: bytes, block: Block) -> Iterator[Assertion]:
        for call in EQUAL.finditer(code, block.start, block.end):
            arguments = arguments_after(code, call.start(1))
            closing = brackets(code[call.start(1) : block.end]).get(0)
            if closing is None or len(arguments) < 2:
                continue
            got, want = arguments[:2]
            if is_constant(code[slice(*got)]):
                got, want = want, got
            if is_constant(code[slice(*got)]) or not is_constant(code[slice(*want)]):
                continue
            value, demanded = (source[slice(*side)].decode("utf-8", "replace") for side in (got, want))
            blank = blank_of(source[slice(*want)], code[slice(*want)])
            yield Assertion(
                call.start(), call.start(1) + closing, f"oc_observe!({SITE}, {demanded}, {value}, {demanded})",
                f"oc_observe!({SITE}, {blank}, {value})", demanded.strip(),
            )  # fmt: skip

    def decides(self, code: bytes) -> bool:
        """Whether a rewritten test, strings and comments blanked out, still decides something by what it computes."""
        return ASSERTS.search(code) is not None or ENDS.search(code) is not None

    def items(self, path: str, source: bytes, code: bytes) -> list[Item]:
        return [
            replace(item, decides=self._item_decides(code[item.start : item.end]) and self.may_show(path, item))
            for item in items(path, code)
        ]

    def may_show(self, path: str, item: Item) -> bool:
        return in_tests(path) or not item.stays

    def _item_decides(self, code: bytes) -> bool:
        if b"#[test]" in code:
            return self.decides(code)
        if b"macro_rules! oc_observe" in code:
            return False
        return ASSERTS.search(code) is not None

    def scope(self, path: str) -> str | None:
        if not path.endswith(".rs"):
            return None
        return f"{path.partition('tests/')[0]}tests" if in_tests(path) else path

    def mended(self, before: bytes, after: bytes, gone: Collection[bytes]) -> bytes:
        return mended(after, gone)

    def said(self, code: bytes, start: int, end: int) -> list[Edit]:
        return [Edit(*said.span("text"), '""') for said in EXPECTS.finditer(code, start, end)]

    def keeps_remark(self, remark: bytes) -> bool:
        return False

    def emptied(self, block: bytes) -> bytes:
        return b""

    def support(self, source: bytes, code: bytes, first: int) -> list[Edit]:
        inner = INNER.match(source)
        at = inner.end() if inner else 0
        return [Edit(at, at, SUPPORT)]


def is_constant(code: bytes) -> bool:
    return bool(code.strip()) and CONSTANT.fullmatch(code) is not None and LEAF.search(code) is not None


def blank_of(source: bytes, code: bytes) -> str:
    """The expression with leaves that say nothing: it only tells the compiler the type."""
    out = bytearray()
    position = 0
    for leaf in LEAF.finditer(code):
        out += source[position : leaf.start()]
        text = leaf[0]
        if text[:1] == b'"':
            out += b'""'
        elif text[:1] == b"'":
            out += b"'a'"
        elif text == b"true":
            out += b"false"
        else:
            suffix = SUFFIX.search(text)
            out += (b"0.0" if b"." in text else b"0") + (suffix[0] if suffix else b"")
        position = leaf.end()
    return bytes(out + source[position:]).decode("utf-8", "replace")
