"""Which values of hidden tests in JavaScript, Go and Rust may be what a test expects of the product.

As `python_tests/literals.py`: work reads what its process or its program holds, so the question is not how a test compares, which
has no end of forms, but what a value is for. One that goes into a call of the product tells work nothing that the call does not
tell it. Any other literal shows an expectation, and so does an operator that compares what the product computes, or a constant of
the product that stands where its own values are told apart.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from sandbox.grading.observations.literals.flows import MADE, Flows
from sandbox.grading.observations.literals.languages.golang import Go
from sandbox.grading.observations.literals.languages.javascript import JavaScript
from sandbox.grading.observations.literals.languages.rustlang import Rust
from sandbox.grading.observations.literals.nodes import File, Node
from sandbox.grading.observations.literals.program import Grammar, Program, bare, call_name, is_target
from sandbox.grading.observations.literals.reach import Reach
from sandbox.grading.observations.literals.readers import golang, javascript, rustlang

LETTER = re.compile(r"(?s)(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|[0-7]{1,3}|.)|.)?")
"""At most one."""
NUMBER = re.compile(r"0*[01]?(?:\.0*)?(?:[iuf](?:8|16|32|64|128|size)|n)?|0[xob]0*[01]?")
SEPARATOR = re.compile(r"[^\w\\]{1,2}")
"""Between parts of a text: too little to be what is expected."""
NOTHING = frozenset({"true", "false", "null", "undefined", "nil", "None", "iota"})
Files = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """Places in one file where it may show an expectation."""

    places: tuple[int, ...] = ()
    """Offsets in bytes."""
    unread: bool = False
    """Whether the file could not be read, so that it may show anything."""

    def within(self, start: int, end: int) -> bool:
        return self.unread or any(start <= place < end for place in self.places)


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files of one language are read."""

    suffixes: tuple[str, ...]
    grammar: Grammar
    read: Callable[[str, bytes, Collection[str]], File | None]
    """Reads the file of a path and text; None where the grammar does not. The last argument: paths of all files of the tests."""


LANGUAGES = (
    Reading((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), JavaScript(), javascript.read),
    Reading((".go",), Go(), golang.read),
    Reading((".rs",), Rust(), rustlang.read),
)


def shown(files: Mapping[str, str]) -> Mapping[str, Shown]:
    """Path → what shows an expectation, of the files of a suite in one of these languages. Data files are not looked at."""
    suffixes = tuple(suffix for language in LANGUAGES for suffix in language.suffixes)
    return _shown(tuple(sorted((path, text) for path, text in files.items() if path.endswith(suffixes))))


@functools.lru_cache(maxsize=16)
def _shown(files: Files) -> Mapping[str, Shown]:
    """Kept, as one plan asks for the same files several times."""
    found: dict[str, Shown] = {}
    for language in LANGUAGES:
        texts = {path: text for path, text in files if path.endswith(language.suffixes)}
        found |= {path: Shown(unread=True) for path in texts}
        read: dict[str, File] = {}
        for path, text in texts.items():
            try:
                made = language.read(path, text.encode(), texts)
            except RecursionError:  # an expression of a thousand levels is not looked into
                made = None
            if made is not None:
                read[path] = made
        if read:
            try:
                values = Values(Program(language.grammar, read))
                found |= {path: Shown(tuple(values.unexplained(file.tree))) for path, file in read.items()}
            except RecursionError:
                pass
    return found


class Values:
    """Of one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.grammar = program, program.grammar
        flows = Flows(program)
        self.reach, self.product = Reach(flows), flows.product

    def unexplained(self, tree: Node) -> Iterator[int]:
        """Where values stand that may be expected, and where what the product computes is compared."""
        for node in tree.walk():
            match node.kind:
                case "literal":
                    told = not self._is_trivial(node) and not self._is_explained(node)
                case "key" if self.grammar.keys_tell:
                    told = not self._is_trivial(node) and not self._is_explained_key(node)
                case "compare":
                    told = self._shows(node)
                case "name" | "member":
                    told = self._is_told_apart(node)
                case _:
                    told = False
            if told:
                yield node.start

    def _is_trivial(self, node: Node) -> bool:
        if node.quoted or node.kind == "key":
            rest = self.grammar.holes.sub("", node.name)
            short = LETTER.fullmatch(rest) or SEPARATOR.fullmatch(rest)
            return short is not None or node.name in self.grammar.words
        return NUMBER.fullmatch(node.name) is not None or node.name in NOTHING

    def _is_explained(self, node: Node) -> bool:
        return self._is_set_up(node) or self.reach.reaches(node) or self.reach.only_names(node, self._is_set_up)

    def _is_explained_key(self, key: Node) -> bool:
        entry = key.above
        assert entry is not None
        value, table = entry.parts[1], entry.above
        given = table.above if table is not None else None
        if (value.kind == "name" and value.name == key.name) or (
            given is not None and given.kind == "bind" and given.name == "exports"
        ):
            return True  # the name of a variable, or of what a file gives away
        if key.name in self.grammar.settings or (value.kind == "literal" and value.name == "undefined"):
            return True
        if key.name in self.program.picked or any(not is_target(node) for node in self.program.members[key.name]):
            return True
        return self.reach.reaches(key)

    def _is_set_up(self, node: Node) -> bool:
        """Whether a literal belongs to a report or the tests' own set-up, or only tells which item is meant."""
        below, above = node, node.above
        while above is not None and above.kind not in ("function", "block", "file", "bind", "statement", "return"):
            match above.kind:
                case "call":
                    index = below.place - 1
                    own = self.grammar.report(above)
                    if own is not None:
                        return index < own
                    if call_name(above) in self.grammar.complains and self._is_of_test(above):
                        return True
                    if call_name(above) in self.grammar.sets_environment and not self._reads_environment():
                        return True
                    if call_name(above) in self.grammar.settings and not self.product.is_computed(above.parts[0]):
                        return True
                case "entry" if below is above.parts[1] and above.parts[0].name in self.grammar.settings:
                    return node is below
                case "index" if below is above.parts[1]:
                    return bare(below) is node and node.name.isdigit()
                case "slice" if below is not above.parts[0]:
                    return bare(below) is node and node.name.isdigit()
                case "compare" | "test":
                    return self.product.is_own(above)
            below, above = above, above.above
        return False

    def _is_of_test(self, call: Node) -> bool:
        """Whether a method of a parameter is called, as of `t *testing.T`, or `expect` of Rust."""
        callee = bare(call.parts[0])
        if callee.name.startswith("expect"):
            return True
        found = self.program.resolve(bare(callee.parts[0])) if callee.kind == "member" else None
        return found is not None and found.owner is not None

    def _reads_environment(self) -> bool:
        return any(self.program.members[name] for name in self.grammar.reads_environment)

    def _shows(self, compare: Node) -> bool:
        """Whether what the product computes is compared, and not only with nothing."""
        sides = [bare(part) for part in compare.parts]
        if any(side.kind == "literal" and side.name in ("null", "undefined", "nil") for side in sides):
            return False
        return not all(map(self.product.is_own, sides))

    def _is_told_apart(self, node: Node) -> bool:
        """Whether a constant of the product is neither called nor given to it, nor reported or looked at itself."""
        above = node.above
        if (
            above is None
            or is_target(node)
            or above.kind not in ("call", "list", "mention", "entry", "bind", "return", "same")
        ):
            return above is not None and above.kind == "mention" and self.product.is_mention(node)
        if above.kind == "call" and (above.parts[0] is node or self.grammar.report(above) is not None):
            return False
        if (
            above.kind == "entry"
            and above.parts[0] is node
            and above.above is not None
            and above.above.kind == "record"
        ):
            return False  # the name of a field
        return self.product.is_mention(node) and not self.reach.reaches(node, (MADE,))
