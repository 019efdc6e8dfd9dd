"""Items of Rust test files, those of modules written out in them included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from sandbox.grading.canaries.scanning import brackets
from sandbox.grading.observations.items import Item

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
LOCAL = frozenset({b"self", b"super", b"crate"})
DECLARING = frozenset({b"fn", b"struct", b"enum", b"union", b"mod", b"const", b"static", b"type", b"macro_rules!"})
TO_SEMICOLON = frozenset({b"const", b"static", b"type", b"use"})


def in_tests(path: str) -> bool:
    return "tests" in PurePosixPath(path).parts


def items(path: str, code: bytes) -> list[Item]:
    """Of a file beside the product's own code, only its tests can leave: the rest may be what the product is made of."""
    found = list(_items(code, 0, len(code)))
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


def _items(code: bytes, start: int, end: int) -> Iterator[Item]:
    closed = brackets(code)
    position = start
    while position < end:
        at = _after_attributes(code, closed, position, end)
        head = HEAD.match(code, at, end)
        if head is None and at > position and code[at : at + 1] != b"":
            position = at  # attributes of the whole file
            continue
        head = head or OTHER.match(code, at, end)
        if head is None:
            return
        stop, body = _stop(code, closed, head, end)
        if head["kind"] == b"mod" and body is not None:
            yield from _items(code, body + 1, stop - 1)
        else:
            yield _item(code, head, position, stop)
        position = stop


def _after_attributes(code: bytes, closed: dict[int, int], position: int, end: int) -> int:
    while (attribute := ATTRIBUTE.match(code, position, end)) is not None:
        after = closed.get(attribute.start("open"))
        if after is None:
            break
        position = after
        if attribute["inner"]:
            break
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
    if kind == b"use":
        return _use(code, head, start, stop)
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


def _use(code: bytes, head: re.Match[bytes], start: int, stop: int) -> Item:
    """An import of a module of the tests goes where nothing uses its names; any other stays."""
    path = code[head.end("kind") : stop]
    words = WORDS.findall(path)
    ours = words and words[0] in LOCAL | set(MODULES.findall(code))
    if not ours or b"*" in path:
        return Item(start, stop, stays=True, leads=False)
    leaves = re.findall(rb"(\w+)\s*(?=[,};])", path)
    return Item(start, stop, frozenset(leaves))
