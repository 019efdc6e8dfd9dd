"""Items of Rust test files, those of modules written out in them included."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from sandbox.grading.canaries.rust import RustTests
from sandbox.grading.canaries.scanning import brackets, mask
from sandbox.grading.observations.brace_tests.items import Item

ATTRIBUTE = re.compile(rb"\s*#(?P<inner>!)?\s*(?P<open>\[)")
HEAD = re.compile(
    rb"\s*(?:pub(?:\s*\([^)]*\))?\s+)?(?:(?:unsafe|async|default|extern(?:\s+\"[^\"]*\")?|const(?=\s+(?:fn|unsafe|async)))\s+)*"
    rb"(?P<kind>fn|struct|enum|union|trait|impl|mod|const|static|type|use|macro_rules!|(?:::)?\w+(?:::\w+)*!)"
    rb"\s*(?:mut\s+)?(?P<name>\w+)?"
)
OTHER = re.compile(rb"\s*(?P<kind>[^\s;{(\[]+)(?P<name>)")
"""Anything else, as `extern crate`: it stays."""
END = re.compile(rb"[;{(\[]")
FN = re.compile(rb"\bfn\s+(\w+)")
WORDS = re.compile(rb"[A-Za-z_]\w*")
MODULES = re.compile(rb"\bmod\s+(\w+)")
USE = re.compile(rb"(?:\bpub(?:\s*\([^)]*\))?\s+)?\buse\s+(?P<path>[^;]*);")
LEAF = re.compile(rb"(?P<whole>(?<=[{,\s:])(?P<name>\w+)(?:\s+as\s+\w+)?\s*(?:,|(?=[};])))")
MAX_DEPTH = 20
"""Of modules written out in each other."""
LOCAL = frozenset({b"self", b"super", b"crate"})
DECLARING = frozenset({b"fn", b"struct", b"enum", b"union", b"mod", b"const", b"static", b"type", b"macro_rules!"})
TO_SEMICOLON = frozenset({b"const", b"static", b"type", b"use"})


def in_tests(path: str) -> bool:
    return "tests" in PurePosixPath(path).parts


def items(path: str, code: bytes) -> list[Item]:
    """The items of a file. Beside the product's own code only its tests can leave: the product may be made of the rest."""
    found = list(_items(code, brackets(code), 0, len(code)))
    if in_tests(path):
        declared = {name for item in found for name in item.names}
        return [_rooted(item, declared) for item in found]
    return [
        item if b"#[test]" in code[item.start : item.end] else Item(item.start, item.end, stays=True) for item in found
    ]


def _rooted(item: Item, declared: set[bytes]) -> Item:
    """An implementation for types of other files stays."""
    if item.owners and not item.owners & declared:
        return Item(item.start, item.end, methods=item.methods, stays=True)
    return item


def _items(code: bytes, closed: dict[int, int], start: int, end: int, depth: int = 0) -> Iterator[Item]:
    position = start
    while position < end:
        position = _after_attributes(code, closed, position, end, inner=True)
        at = _after_attributes(code, closed, position, end, inner=False)
        head = HEAD.match(code, at, end) or OTHER.match(code, at, end)
        if head is None:
            return
        stop, body = _stop(code, closed, head, end)
        if head["kind"] == b"mod" and body is not None and depth < MAX_DEPTH:
            yield from _items(code, closed, body + 1, stop - 1, depth + 1)
        else:
            yield _item(code, head, position, stop)
        position = stop


def _after_attributes(code: bytes, closed: dict[int, int], position: int, end: int, *, inner: bool) -> int:
    """The offset after attributes of what they stand in (`inner`), or of what follows them."""
    while (attribute := ATTRIBUTE.match(code, position, end)) is not None and bool(attribute["inner"]) is inner:
        after = closed.get(attribute.start("open"))
        if after is None:
            break
        position = after
    return position


def _stop(code: bytes, closed: dict[int, int], head: re.Match[bytes], end: int) -> tuple[int, int | None]:
    """The offset after an item, and where its body in braces begins, if it ends with one."""
    position = head.end("kind")
    while (mark := END.search(code, position, end)) is not None:
        if mark[0] == b";":
            return mark.end(), None
        after = closed.get(mark.start())
        if after is None:
            break
        if mark[0] == b"{" and head["kind"] not in TO_SEMICOLON:
            return after, mark.start()
        position = after
    return end, None


def _item(code: bytes, head: re.Match[bytes], start: int, stop: int) -> Item:
    kind, name = head["kind"], frozenset({head["name"]} if head["name"] else ())
    inside = frozenset(FN.findall(code, start, stop))
    if kind == b"use":  # what it names stays if something else names it (`mended`)
        return Item(start, stop, stays=True, leads=False)
    if kind == b"impl":
        brace = code.find(b"{", head.start(), stop)
        header = frozenset(WORDS.findall(code, head.end("kind"), brace if brace >= 0 else stop))
        return Item(start, stop, methods=inside, owners=header - {b"for", b"where", b"dyn"})
    if kind == b"trait":
        return Item(start, stop, name, methods=inside)
    if kind in DECLARING:
        return Item(start, stop, name, stays=kind == b"mod", leads=kind != b"mod")
    if not kind.endswith(b"!"):
        return Item(start, stop, stays=True, leads=False)
    statics = frozenset(re.findall(rb"\bstatic\s+(?:ref\s+)?(\w+)", code[start:stop]))
    return Item(start, stop, statics, stays=not statics)


def mended(text: bytes, gone: Collection[bytes]) -> bytes:
    """A file whose imports of the tests' own modules name nothing that is gone."""
    code = mask(text, RustTests.syntax).code
    modules = LOCAL | set(MODULES.findall(code))
    edits: list[tuple[int, int]] = []
    for use in USE.finditer(code):
        words = WORDS.findall(use["path"])
        if not words or words[0] not in modules:
            continue
        leaves = [leaf for leaf in LEAF.finditer(code, use.start("path"), use.end()) if leaf["name"] != b"self"]
        dead = [leaf for leaf in leaves if leaf["name"] in gone]
        if dead and len(dead) == len(leaves) and b"self" not in use["path"] and b"*" not in use["path"]:
            edits.append(use.span())
        else:
            edits.extend(leaf.span("whole") for leaf in dead)
    out, position = bytearray(), 0
    for start, end in edits:
        out += text[position:start]
        position = end
    return bytes(out + text[position:])
