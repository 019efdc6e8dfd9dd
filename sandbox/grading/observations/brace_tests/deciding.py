"""What in a JavaScript test file shows an expectation, and the file without it.

A report alone shows none. What decides inside the sandbox does, and every value that the product is not given
(`observations/literals/`): work that reads it learns what is wanted. That may stand in a test, in a hook, at the top of the
file, in a helper of the file or of another hidden file, and any of these may reach it through others.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sandbox.grading.observations.brace_tests.braces import Edit, applied
from sandbox.grading.observations.brace_tests.statements import Load, Names, Statement, statements
from sandbox.grading.observations.literals import Shown, shown

ASSERTS = re.compile(
    rb"(?<![\w$.])(?:assert|expect|should|strictEqual|deepStrictEqual|ok|equal|deepEqual|throws|rejects)\b|\bthrow\b"
    rb"|\.(?:assert|should|ok|is|not|equal|deepEqual|same|fail|expect)\b|\bprocess\.(?:exit|abort|kill)\b"
)
"""What a test decides by, if it does not report."""
CHECKERS = re.compile(
    r"(?:node:)?assert(?:/strict)?|chai.*|should.*|expect.*|unexpected|power-assert|supertest|uvu/assert|@japa/.*|jest-.*|sinon.*"
)
"""Modules whose functions decide."""
RUNNERS = re.compile(r"(?:node:)?test|vitest|@jest/globals|bun:test|mocha")
ALIAS = re.compile(rb"\b(?:assert|expect|should)\s*(?:\bas\b|:)\s*([A-Za-z_$][\w$]*)")
ASSIGNED = re.compile(rb"(?<![\w$.])([A-Za-z_$][\w$]*)(?:\.[\w$.]+|\[[^\]]*\])?\s*=(?![=>])")
FIELD = re.compile(rb"\.([A-Za-z_$][\w$]*)\s*=(?![=>])")
OWN_FIELD = re.compile(rb"(?P<base>[A-Za-z_$][\w$]*)(?:\.[\w$]+)*\.(?P<field>[\w$]+)\s*=(?![=>])")
LOADS = re.compile(rb"(?:\b(?:require|import)\s*\(\s*|\bexport\b[^;'\"]*\bfrom\s*)(['\"])([^'\"\\\n]+)\1")
TABLE = re.compile(
    rb"=\s*(?:Object\.\w+\(|new\s+(?:Map|Set)\()?\s*(?:\[\s*[\[{]|\[[^\]]*(?:\bnew\b|\w\()|\{[^}]*(?:\bnew\b|\w\())"
)
"""Rows, or objects that are made while the file is read."""
READS = re.compile(rb"\b(?:readFile|readFileSync|readdir|readdirSync|createReadStream)\b")
GIVEN = re.compile(rb"module\.exports\s*=|export\s+default\b|export\s*\{(?![^}]*\}\s*from\b)")
EXPORTED = re.compile(rb"(?:module\.)?exports\.([A-Za-z_$][\w$]*)\s*=(?![=>])")
ALL = b"*"
SUPPORT = b"$observe"
SUFFIXES = ("", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx", "/index.js", "/index.ts")
SCRIPTS = tuple(suffix for suffix in SUFFIXES if suffix.startswith("."))


def asserts(said: bytes) -> bool:
    return ASSERTS.search(said) is not None


def resolved(path: str, module: str, files: Collection[str]) -> str | None:
    """The hidden file that `module` names in the file `path`, if it is one."""
    if not module.startswith("."):
        return None
    base = posixpath.normpath(posixpath.join(posixpath.dirname(path), module))
    return next((base + suffix for suffix in SUFFIXES if base + suffix in files), None)


@dataclass(frozen=True)
class TestFile:
    """A rewritten test file among the other hidden files (path → text)."""

    path: str
    text: bytes
    files: Mapping[str, str]
    known: dict[str, frozenset[bytes]] = field(default_factory=dict)
    """Helper files that were looked at: path → `told`."""

    __test__ = False

    @cached_property
    def statements(self) -> list[Statement]:
        return statements(self.text)

    @cached_property
    def _declared(self) -> frozenset[bytes]:
        return frozenset().union(*(one.declares for one in self.statements))

    @cached_property
    def _showing(self) -> frozenset[int]:
        """Where statements begin that show an expectation by their own text, or load what does."""
        found = set(self._values_shown)
        for one in self.statements:
            loaded = (module[-1].decode("utf-8", "replace") for module in LOADS.findall(one.source))
            if asserts(one.said) or (one.kind != "import" and any(map(self._loads_checks, loaded))):
                found.add(one.start)
        return frozenset(found)

    @cached_property
    def values(self) -> Shown:
        """Which values of the file the product is not given."""
        every = {**self.files, self.path: self.text.decode("utf-8", "replace")}
        return shown(every).get(self.path, Shown(unread=True))

    @cached_property
    def _values_shown(self) -> frozenset[int]:
        """Where the innermost statements begin that hold such a value."""
        if self.values.unread:
            return frozenset(one.start for one in self.statements if SUPPORT not in one.declares)
        found = set[int]()
        for place in self.values.places:
            around = [one for one in self.statements if one.start <= place < one.end and SUPPORT not in one.declares]
            found |= {one.start for one in around[-1:]}
        return frozenset(found)

    @cached_property
    def _deciding_names(self) -> frozenset[bytes]:
        """What this file calls something that decides; names of fields begin with a dot."""
        names: set[bytes] = set()
        for one in self.statements:
            if one.kind == "import" and SUPPORT not in one.declares:
                names |= self._checks(one)
        size = -1
        while size != len(names):
            size = len(names)
            for one in self.statements:
                if SUPPORT in one.declares or one.kind in ("import", "test", "group") or not self._shows(one, names):
                    continue
                names |= one.declares
                if one.kind == "other":
                    names |= set(ASSIGNED.findall(one.said)) & self._declared
                    names |= {b"." + name for name in FIELD.findall(one.said)}
        return frozenset(names)

    def _checks(self, one: Statement) -> frozenset[bytes]:
        """What a statement that loads modules takes from them that decides."""
        return frozenset(ALIAS.findall(one.said)).union(*map(self._checks_of, one.loads))

    def _checks_of(self, load: Load) -> frozenset[bytes]:
        told = self._told_by(load.module)
        if told is None:
            return load.names if CHECKERS.fullmatch(load.module) else frozenset()
        if not load.names:
            return told  # it may make them known everywhere
        return load.names & told if load.plain and ALL not in told else load.names if told else frozenset()

    def _told_by(self, module: str) -> frozenset[bytes] | None:
        """What a helper file gives away; None for a module that is none."""
        path = resolved(self.path, module, self.files)
        if path is None or not path.endswith(SCRIPTS):
            return None
        if path not in self.known:
            self.known[path] = frozenset()  # one that loads itself
            files = {**self.files, self.path: self.text.decode("utf-8", "replace")}
            self.known[path] = TestFile(path, self.files[path].encode(), files, self.known).told
        return self.known[path]

    @cached_property
    def told(self) -> frozenset[bytes]:
        """Names under which a helper file gives away what decides; `ALL` for any name."""
        names = {name.removeprefix(b".") for name in self._deciding_names}
        whole = any(
            self._tells_all(one) for one in self.statements if one.kind in ("other", "hook") and self._decides(one)
        )
        return frozenset({*names, ALL}) if whole else frozenset(names)

    def _tells_all(self, one: Statement) -> bool:
        """Whether a deciding statement outside tests may have any name outside its file."""
        if GIVEN.match(one.said):
            other = re.search(rb":|\bas\b|\brequire\b", one.said) is not None
            return other or one.start in self._showing
        return EXPORTED.match(one.said) is None

    def _loads_checks(self, module: str) -> bool:
        return CHECKERS.fullmatch(module) is not None or bool(self._told_by(module))

    def _shows(self, one: Statement, names: Collection[bytes]) -> bool:
        if one.start in self._showing or not one.words.isdisjoint(names):
            return True
        return any(b"." + name in names for name in one.fields)

    def _decides(self, one: Statement) -> bool:
        return self._shows(one, self._deciding_names)

    def deciding_tests(self) -> set[Names]:
        """Tests that show an expectation, and those that stand in a statement that does."""
        return {
            names
            for one in self.statements
            if one.kind != "group" and one.tests and self._decides(one)
            for names in one.tests
        }

    def deciding_elsewhere(self) -> int:
        """How many hooks and other statements outside tests show an expectation."""
        return sum(
            self._decides(one) if one.kind != "value" else b"(" in one.said and asserts(one.said)
            for one in self.statements
            if one.kind in ("other", "value", "hook") and not one.tests and SUPPORT not in one.declares
        )

    def comparable(self) -> set[Names]:
        """Tests that show nothing, and need no table that something else takes its expectations from."""
        deciding = self.deciding_tests()
        told = self._needs(
            one for one in self.statements if one.kind in ("test", "other", "hook") and self._decides(one)
        )  # what those read that decide
        tables = [one.declares for one in self.statements if self._is_table(one)]
        shared = frozenset().union(*(names for names in tables if not names.isdisjoint(told)))
        tests = [one for one in self.statements if one.kind != "group" and one.tests]
        spoilt = (
            {n for one in tests if not self._needs([one]).isdisjoint(shared) for n in one.tests} if shared else set()
        )
        return {names for one in tests for names in one.tests} - deciding - spoilt

    def _is_table(self, one: Statement) -> bool:
        """Whether this holds rows, objects that are made while the file is read, or what a data file says."""
        if one.kind == "value":
            return TABLE.search(one.said[:4000]) is not None or READS.search(one.said) is not None
        others = [resolved(self.path, load.module, self.files) for load in one.loads]
        return any(other is not None and not other.endswith(SCRIPTS) for other in others)

    def _needs(self, those: Iterable[Statement]) -> set[bytes]:
        """Names that these statements mention, and what is declared under them mentions."""
        words = set[bytes]().union(*(one.words for one in those))
        self._close(words)
        return words

    @cached_property
    def _made(self) -> list[Statement]:
        return [one for one in self.statements if one.kind in ("value", "function") or one.parts]

    def _close(self, words: set[bytes]) -> None:
        size = -1
        while size != len(words):
            size = len(words)
            for one in self._made:
                if SUPPORT not in one.declares and not one.declares.isdisjoint(words):
                    words |= one.uses(words)

    def without(
        self, needed: Collection[Names], kept: Collection[Names], *, hooks: bool, among: Collection[bytes] | None = None
    ) -> bytes:
        """The file with the tests `kept` alone, and only what `needed`, some of these, make use of.

        With `hooks`, also hooks and other statements that show nothing stay, if they stand `among` some as they are written.
        """
        words = self._needs(one for one in self.statements if any(names in needed for names in one.tests))
        stay = self._staying(words, needed, among) if hooks else set()
        edits, position = [], 0
        for one in self.statements:
            if one.start >= position and one.start not in stay and not self._stays(one, words, needed, kept):
                edits.append(Edit(one.start, one.end, ""))
                position = one.end
            elif one.kind in ("value", "import"):
                edits += [Edit(part.start, part.end, " undefined") for part in one.idle(words)]
        return applied(self.text, edits)

    @property
    def hooks(self) -> frozenset[bytes]:
        """Hooks and other statements outside tests, as they are written."""
        return frozenset(one.source for one in self.statements if one.kind in ("other", "hook"))

    def _staying(self, words: set[bytes], needed: Collection[Names], among: Collection[bytes] | None) -> set[int]:
        """Where hooks and other statements begin that show nothing, and do not only make what nobody needs. What they mention
        is added to `words`."""
        stay: set[int] = set()
        fields = set[bytes]().union(
            *(
                one.fields
                for one in self.statements
                if not one.declares.isdisjoint(words) or any(names in needed for names in one.tests)
            )
        )
        size = -1
        while size != len(stay):
            size = len(stay)
            for one in self.statements:
                if (
                    one.kind not in ("other", "hook")
                    or one.start in stay
                    or (among is not None and one.source not in among)
                ):
                    continue
                if self._may_stay(one, words, fields):
                    stay.add(one.start)
                    words |= one.words
                    self._close(words)
        return stay

    def _may_stay(self, one: Statement, words: Collection[bytes], fields: Collection[bytes]) -> bool:
        if one.tests or self._decides(one):
            return False
        assigned = set(ASSIGNED.findall(one.said)) & self._declared
        if assigned and assigned.isdisjoint(words):
            return False
        own = OWN_FIELD.match(one.said)
        return own is None or own["field"] in fields or own["base"] in self._loaded

    @cached_property
    def _loaded(self) -> frozenset[bytes]:
        return frozenset().union(*(one.declares for one in self.statements if one.kind == "import"))

    @staticmethod
    def _stays(one: Statement, words: Collection[bytes], needed: Collection[Names], kept: Collection[Names]) -> bool:
        tests = kept if one.kind in ("group", "test") else needed
        if any(names in tests for names in one.tests):
            return True
        if one.kind == "import":
            runner = any(RUNNERS.fullmatch(load.module) for load in one.loads)
            return runner or not one.declares or not one.declares.isdisjoint(words)
        if one.kind == "other":
            return one.said.strip(b"; \n")[:1] in (b"'", b'"') and not one.words
        return (
            SUPPORT in one.declares or not one.declares.isdisjoint(words)
            if one.kind in ("value", "function")
            else False
        )
