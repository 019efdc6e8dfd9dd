"""Top-level items of test files in Go and Rust: what each declares, what it leads to, and whether it decides something.

A first run must show no expectation (`hiding.py`), and those stand not only in tests: helpers assert, tables and constants
hold wanted values. So a test decides if anything that it leads to decides, and what no kept test leads to leaves the files.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable

from sandbox.grading.canaries.insertion import blocks_of
from sandbox.grading.canaries.scanning import BRACKETS, CLOSED_BY, mask
from sandbox.grading.observations.brace_tests.braces import Edit, Rewriter
from sandbox.grading.observations.literals import Shown, shown

Names = tuple[str, ...]
WORD = re.compile(rb"(?P<before>\.|::)?[ \t]*\b(?P<word>[A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Item:
    """One declaration at the top of a file, or of a module in it. Offsets are bytes of the file."""

    start: int
    end: int
    names: frozenset[bytes] = frozenset()
    methods: frozenset[bytes] = frozenset()
    """Names under which it is used behind a dot."""
    owners: frozenset[bytes] = frozenset()
    """Methods and implementations: they stay with any of these."""
    bound: frozenset[bytes] = frozenset()
    """Names that it binds itself, so that they lead to nothing outside."""
    stays: bool = False
    """Part of every program, as imports and code that runs by itself."""
    runs: bool = True
    """`stays`: whether it calls anything by itself."""
    leads: bool = True
    """Whether what it names has to stay with it."""
    decides: bool = False
    hands: frozenset[bytes] = frozenset()
    """Functions that it hands its test to; one that is not in these files may decide."""


@runtime_checkable
class Itemised(Rewriter, Protocol):
    """A rewriter of a language in which unused declarations can leave a file."""

    @property
    def apart(self) -> bool:
        """Whether a bare name means the file's own declaration where it has one."""
        ...

    def items(self, path: str, source: bytes, code: bytes) -> list[Item]:
        """In text order; `code` is `source` with strings and comments blanked out."""
        ...

    def may_show(self, path: str, item: Item) -> bool:
        """Whether an item belongs to the tests, and not to the product beside them."""
        ...

    def scope(self, path: str) -> str | None:
        """What the file shares its names with; None where it is no file of tests."""
        ...

    def mended(self, before: bytes, after: bytes, gone: Collection[bytes]) -> bytes:
        """`after`, from which declarations are gone, in a form that compiles if `before` did. `gone`: names that no file of
        the scope declares any more."""
        ...

    def said(self, code: bytes, start: int, end: int) -> list[Edit]:
        """What blanks the messages that a test gives when it fails."""
        ...

    def keeps_remark(self, remark: bytes) -> bool:
        """Whether a comment says something to the compiler."""
        ...


Key = tuple[str, int]
"""Path of a file, and the number of an item in it."""
Name = tuple[Literal["named", "own", "method", "owned"], str | None, bytes]
"""A use of a name in a scope or in one file: all that it may mean."""


class Reached:
    """The items of several files, and which lead to which."""

    def __init__(self, rewriter: Itemised, files: Mapping[str, bytes]) -> None:
        self._rewriter = rewriter
        self._files = {path: text for path, text in files.items() if rewriter.scope(path) is not None}
        self._codes = {path: mask(text, rewriter.syntax).code for path, text in self._files.items()}
        self._items = {path: rewriter.items(path, text, self._codes[path]) for path, text in self._files.items()}
        self._meant: dict[Name, list[Key]] = {}
        self._tests: dict[Key, set[Names]] = {}
        for path, text in self._files.items():
            self._register(path)
            starts = [item.start for item in self._items[path]]
            for block in blocks_of(rewriter.language, text):
                number = bisect_right(starts, block.name_start) - 1
                if number >= 0 and block.name_start < self._items[path][number].end:
                    self._tests.setdefault((path, number), set()).add(block.names)
        self._uses = {key: self._names_used(*key) for key, _ in self._keys()}

    def _register(self, path: str) -> None:
        scope = self._rewriter.scope(path)
        for number, item in enumerate(self._items[path]):
            meant: list[Name] = [("named", scope, name) for name in item.names]
            meant += [("own", path, name) for name in item.names]
            meant += [("method", scope, name) for name in item.methods]
            meant += [("owned", scope, name) for name in item.owners]
            for name in meant:
                self._meant.setdefault(name, []).append((path, number))

    def _keys(self) -> Iterator[tuple[Key, Item]]:
        return (((path, n), item) for path, items in self._items.items() for n, item in enumerate(items))

    def _names_used(self, path: str, number: int) -> set[Name]:
        item, scope = self._items[path][number], self._rewriter.scope(path)
        found: set[Name] = {("owned", scope, name) for name in item.names}
        for use in WORD.finditer(self._codes[path], item.start, item.end) if item.leads else ():
            word, before = use["word"], use["before"]
            if before == b".":
                found.add(("method", scope, word))
            if (before is None and word in item.bound) or (before == b"." and not word[:1].isupper()):
                continue
            own: Name = ("own", path, word)
            found.add(own if before is None and self._rewriter.apart and own in self._meant else ("named", scope, word))
        return found & self._meant.keys()

    def _closure(self, roots: Iterable[Key]) -> set[Key]:
        """`roots` and all that they lead to."""
        reached: set[Key] = set(roots)
        waiting, names = list(reached), set[Name]()
        while waiting:
            for name in self._uses[waiting.pop()] - names:
                names.add(name)
                waiting.extend(key for key in self._meant[name] if key not in reached)
                reached.update(self._meant[name])
        return reached

    def _leading_to(self, targets: Iterable[Key]) -> set[Key]:
        """`targets` and all that leads to them."""
        users: dict[Name, list[Key]] = {}
        for key, names in self._uses.items():
            for name in names:
                users.setdefault(name, []).append(key)
        meant_by: dict[Key, list[Name]] = {}
        for name, keys in self._meant.items():
            for key in keys:
                meant_by.setdefault(key, []).append(name)
        reached: set[Key] = set(targets)
        waiting, done = list(reached), set[Name]()
        while waiting:
            for name in meant_by.get(waiting.pop(), ()):
                if name not in done:
                    done.add(name)
                    waiting.extend(key for key in users.get(name, ()) if key not in reached)
                    reached.update(users.get(name, ()))
        return reached

    @cached_property
    def _shown(self) -> Mapping[str, Shown]:
        return shown({path: text.decode("utf-8", "replace") for path, text in self._files.items()})

    def _holds(self, key: Key, item: Item) -> bool:
        """Whether an item of the tests holds a value that the product is not given."""
        return self._rewriter.may_show(key[0], item) and self._shown[key[0]].within(item.start, item.end)

    def _decides(self, key: Key, item: Item) -> bool:
        scope = self._rewriter.scope(key[0])
        return (
            item.decides
            or self._holds(key, item)
            or any(
                ("named", scope, name) not in self._meant and ("method", scope, name) not in self._meant
                for name in item.hands
            )
        )

    def deciding(self) -> dict[str, set[Names]]:
        """Tests of each file that decide something themselves, by what they lead to, or beside code that always runs."""
        decide = self._leading_to(key for key, item in self._keys() if self._decides(key, item))
        poisoned = {
            self._program(key[0])
            for key, item in self._keys()
            if item.stays and key in decide and (item.runs or self._holds(key, item))
        }
        found: dict[str, set[Names]] = {path: set() for path in self._files}
        for key, tests in self._tests.items():
            if key in decide or self._program(key[0]) in poisoned:
                found[key[0]] |= tests
        return found

    def _program(self, path: str) -> str | None:
        return path if self._rewriter.apart else self._rewriter.scope(path)

    def only(self, kept: Mapping[str, Collection[Names]]) -> dict[str, bytes]:
        """The files without other tests than `kept` (path → names), and without what only those lead to."""
        reached = self._closure([*(key for key, item in self._keys() if item.stays), *self._of_tests(kept)])
        scopes = set(map(self._rewriter.scope, self._files))
        gone = {scope: self._gone(scope, reached) for scope in scopes}
        made = {}
        for path, text in self._files.items():
            left = [item for number, item in enumerate(self._items[path]) if (path, number) not in reached]
            dead = gone[self._rewriter.scope(path)]
            made[path] = self._rewriter.mended(text, _without(text, left), dead) if dead or left else text
        return made

    def beside(
        self, needed: Mapping[str, Collection[Names]], others: Mapping[str, Collection[Names]]
    ) -> dict[str, set[Names]]:
        """Those of `others` (path → tests) that lead to nothing but themselves which the tests `needed` do not lead to."""
        stays = [key for key, item in self._keys() if item.stays]
        held = self._closure([*stays, *self._of_tests(needed)])
        found: dict[str, set[Names]] = {path: set() for path in others}
        for path, tests in others.items():
            for names in tests:
                own = set(self._of_tests({path: {names}}))
                if self._closure(own) <= held | own:
                    found[path].add(names)
        return found

    def _of_tests(self, tests: Mapping[str, Collection[Names]]) -> Iterator[Key]:
        for key, found in self._tests.items():
            if any(names in tests.get(key[0], ()) for names in found):
                yield key

    def _gone(self, scope: str | None, reached: Collection[Key]) -> set[bytes]:
        """Names of a scope that nothing declares which is reached."""
        return {
            name
            for (kind, where, name), keys in self._meant.items()
            if kind == "named" and where == scope and not any(key in reached for key in keys)
        }


def _without(text: bytes, gone: Collection[Item]) -> bytes:
    out, position = bytearray(), 0
    for item in gone:
        out += text[position : item.start]
        position = max(position, item.end)
    return bytes(out + text[position:])


def without_remarks(rewriter: Itemised, path: str, source: bytes) -> bytes:
    """`source` without comments, lines kept: they may tell what is expected. Examples of Go keep theirs, which decide."""
    code = mask(source, rewriter.syntax).code
    examples = [
        item
        for item in rewriter.items(path, source, code)
        if any(name.startswith(b"Example") for name in item.names) and path.endswith(".go")
    ]
    out, position = bytearray(), 0
    for token in rewriter.syntax.tokens.finditer(source):
        remark = token["comment"]
        if remark is None or rewriter.keeps_remark(remark):
            continue
        if not any(item.start <= token.start() < item.end for item in examples):
            out += source[position : token.start()] + (b"\n" * remark.count(b"\n") or b" ")
            position = token.end()
    return bytes(out + source[position:])


def at_depth_0(pattern: re.Pattern[bytes], code: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
    """Matches of `pattern` in [start, end) that begin outside all brackets opened there."""
    depth, position = 0, start
    for match in pattern.finditer(code, start, end):
        for bracket in BRACKETS.finditer(code, position, match.start()):
            depth += 1 if bracket[0] in CLOSED_BY else -1
        position = max(position, match.start())
        if depth == 0:
            yield match
