"""JavaScript, Go and Rust as concrete syntax trees (tree-sitter), and edits of their text by the places of nodes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import tree_sitter_go
import tree_sitter_javascript
import tree_sitter_rust
from tree_sitter import Language, Node, Parser

MAX_BYTES = 200_000
MAX_DEPTH = 200


class Edit(NamedTuple):
    """Bytes [start, end) become `text`."""

    start: int
    end: int
    text: str


Name = Literal["javascript", "go", "rust"]
GRAMMARS = {
    "javascript": tree_sitter_javascript.language,
    "go": tree_sitter_go.language,
    "rust": tree_sitter_rust.language,
}


@functools.lru_cache(maxsize=3)
def _parser(language: Name) -> Parser:
    return Parser(Language(GRAMMARS[language]()))


def parse(language: Name, source: bytes) -> Node | None:
    """The tree of a whole file; None where it is too long or does not parse."""
    if len(source) > MAX_BYTES:
        return None
    root = _parser(language).parse(source).root_node
    return None if root.has_error else root


def walk(node: Node, depth: int = 0) -> Iterator[Node]:
    """The node and all below it, in the order of the text."""
    yield node
    if depth < MAX_DEPTH:
        for child in node.children:
            yield from walk(child, depth + 1)


def ancestors(node: Node) -> Iterator[Node]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def edited(source: bytes, edits: Iterable[Edit]) -> bytes:
    """The text with these edits, none of which lies in another; of those that do, the outer one counts."""
    made, position = bytearray(), 0
    for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        if edit.start < position:
            continue
        made += source[position : edit.start] + edit.text.encode()
        position = edit.end
    return bytes(made + source[position:])
