"""Tests of JavaScript, Go and Rust as one small tree: what a value is made of and where it is put, and nothing else.

Each language reads its own grammar into these nodes (`readers/`); what follows a value through them
(`flows.py`) knows no language.

    file, function, block, each     scopes; a function has its parameters and then its body as parts
    name, literal, key              a name; text of a literal; the fixed key of an entry
    member, index, slice            of an object: `a.name`, `a[place]`, `a[from:to]`
    call                            what is called, and its arguments; `name` is "new" where an object is made
    list, spread, table, entry      containers; an entry is a key and a value
    record                          a type and its entries or items
    same, join                      as one of its parts; made of its parts
    compare, test, mention          what is compared; a condition; a name that stands where values are told apart
    bind                            a target and its value; `name` is "let", "var" or "set"; without a value only a declaration
    return, statement, class        a result; an expression that nobody takes; methods of a type
    default                         a target of a pattern and what it is where nothing is given
    unknown                         a value that the product may have a part in
    other                           anything else: a value that is put there goes nowhere that is known
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tree_sitter_go
import tree_sitter_javascript
import tree_sitter_rust
import tree_sitter_typescript
from tree_sitter import Language as Syntax
from tree_sitter import Node as Read
from tree_sitter import Parser

Kind = Literal[
    "file", "function", "block", "each", "name", "literal", "key", "member", "index", "slice", "call", "list", "spread",
    "table", "entry", "record", "same", "join", "compare", "test", "mention", "bind", "return", "statement", "class", "default",
    "unknown", "other",
]  # fmt: skip
GRAMMARS: dict[str, Callable[[], object]] = {
    "javascript": tree_sitter_javascript.language,
    "typescript": tree_sitter_typescript.language_typescript,
    "tsx": tree_sitter_typescript.language_tsx,
    "go": tree_sitter_go.language,
    "rust": tree_sitter_rust.language,
}
MAX_BYTES = 1_000_000


@dataclass(eq=False, slots=True)
class Node:
    """Offsets are bytes of the file."""

    kind: Kind
    start: int
    end: int
    name: str = ""
    parts: list[Node] = field(default_factory=list)
    above: Node | None = None
    place: int = 0
    """Among the parts of the node above."""
    quoted: bool = False
    """Whether a literal is a text."""

    def walk(self) -> Iterator[Node]:
        """The node and all below it, in the order of the text."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.parts)

    def parameters(self) -> list[Node]:
        """Parameters of a function."""
        return self.parts[:-1]


@dataclass(frozen=True, slots=True)
class Import:
    """A name that a file takes from elsewhere: `member` of a module, or the module where that is empty."""

    name: str
    member: str
    product: bool
    helper: str = ""
    """Path of the file of the tests that it comes from, or is."""


@dataclass(slots=True)
class File:
    """A file that was read."""

    path: str
    tree: Node
    imports: list[Import] = field(default_factory=list)
    open: bool = False
    """Whether names that nothing declares are the product's: `use super::*`, a package of Go."""
    globs: list[str] = field(default_factory=list)
    """Files of the tests that it takes all names from."""


@functools.lru_cache(maxsize=8)
def parser(grammar: str) -> Parser:
    return Parser(Syntax(GRAMMARS[grammar]()))


def parsed(grammar: str, source: bytes) -> Read | None:
    """The tree of a text; None where it is too long or does not parse."""
    if len(source) > MAX_BYTES:
        return None
    root = parser(grammar).parse(source).root_node
    return None if root.has_error else root


class Reader:
    """Makes nodes of what a grammar read. A language has a method `_<type>` for each type that is more than its parts."""

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift
        """What is added to the offsets of the grammar."""

    def node(self, kind: Kind, read: Read, parts: Sequence[Node] = (), name: str = "") -> Node:
        made = Node(kind, read.start_byte + self.shift, read.end_byte + self.shift, name, list(parts))
        for place, part in enumerate(made.parts):
            part.above, part.place = made, place
        return made

    def read(self, read: Read) -> Node:
        method: Callable[[Read], Node] | None = getattr(self, f"_{read.type}", None)
        return self.node("other", read, self.below(read)) if method is None else method(read)

    def below(self, read: Read) -> list[Node]:
        return [self.read(child) for child in read.named_children if child.type not in REMARKS]

    def at(self, read: Read, name: str) -> Node:
        """What stands in a field; nothing, where the grammar has left it out."""
        found = read.child_by_field_name(name)
        return self.node("other", read) if found is None else self.read(found)

    def quoted(self, read: Read, text: str) -> Node:
        made = self.node("literal", read, (), text)
        made.quoted = True
        return made

    def same(self, read: Read) -> Node:
        return self.node("same", read, self.below(read))

    def joined(self, read: Read) -> Node:
        return self.node("join", read, self.below(read))


def names(file: str) -> frozenset[str]:
    """The names in a file of `names/`: methods of the standard library's values, global names, modules."""
    return frozenset((Path(__file__).parent / "names" / f"{file}.txt").read_text(encoding="utf-8").split())


REMARKS = frozenset({"comment", "line_comment", "block_comment", "hash_bang_line"})


def text_of(read: Read | None) -> str:
    return "" if read is None else (read.text or b"").decode("utf-8", "replace")
