"""Data flow in JavaScript, Go and Rust without a parser: literals and comments are told apart, names follow assignments.

A file is read as statements. A name is labelled when an expression that is assigned to it holds a labelled name, or a call that
reads sources or tests; a sink counts when its arguments hold such a name, or such a call.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from sandbox.grading.audit.flow.base import Flow, Kind
from sandbox.grading.audit.flow.languages import (
    CANDIDATES,
    COMPARES,
    JAVASCRIPT,
    RUST,
    TEST_PATH,
    Language,
    language_of,
)

ROUNDS = 4
MAX_CHARS = 400_000
MAX_NAMES, MAX_HITS = 2_000, 200
"""Assignments and facts of one kind that are looked at in one file; a file that has more is reported as not read."""
MAX_STATEMENT = 800
JOINS, LISTED = re.compile(r"\s*\+\s*"), re.compile(r"\s*,\s*")
"""Between parts of one text: `"te" + "st"`, and the same inside of `concat!`."""
NAME = re.compile(r"(?<![.\w$])[A-Za-z_$][\w$]{0,80}")
NO_NAMES = frozenset({"err", "_", "error", "ok", "i", "const", "let", "mut"})


LOOP_NAME = re.compile(r"(?:\b(?:const|let|var)\s+\[?|\bfor\s+\w+,\s*|\bfor\s+\(?&?)(?P<name>\w+)[^\n]{0,40}\Z")
CALLBACK_NAME = re.compile(r"\w+(?:\s*\.\s*\w+\(\))*\s*\.\s*\w+\(\s*[(|&]{0,3}(?P<name>\w+)")
"""The name that stands for each candidate: `for (const f of forms)`, `for _, f := range forms`, `forms.find((f) => …)`."""
USES = "(find|filter|some|every|findIndex|reduce|iter|forEach|map)"
EXPECTED = re.compile(r"\.(expected|want|output|result|answer)\b|\bexpected\b|\bwant(ed)?\b|\[1\]|\.1\b")
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*+(?:#\[[^\]]*+\]\s*+){0,5}(?:pub(?:\([^)]*+\))?\s++)?mod\s++\w++\s*+\{")


def mask(text: str, language: Language) -> tuple[str, list[tuple[int, int]]]:
    """The text with comments and the inside of literals blanked, and the spans of literals. Offsets stay."""
    literals: list[tuple[int, int]] = []

    def blank(found: re.Match[str]) -> str:
        whole = found.group()
        inner = "".join(c if c == "\n" else " " for c in whole[1:-1])
        if found["comment"] is not None or len(whole) < 2:
            return "".join(c if c == "\n" else " " for c in whole)
        literals.append(found.span())
        if whole[0] == "`" and language is JAVASCRIPT and "${" in whole:
            return whole[0] + whole[1:-1] + whole[-1]  # what is inserted is code
        return whole[0] + inner + whole[-1]

    return language.tokens.sub(blank, text[:MAX_CHARS]), literals


def flows(path: str, text: str) -> list[Flow]:
    """Facts about a file of JavaScript, Go or Rust. Never executes anything."""
    language = language_of(path)
    if language is None:
        return []
    code, literals = mask(text, language)
    if language is RUST:
        code = _without_tests(code)
    reader = _Reader(language, text, code, literals)
    return sorted({(f.kind, f.start): f for f in reader.read()}.values(), key=lambda flow: flow.start)


def _without_tests(code: str) -> str:
    """Rust keeps unit tests beside the product: `#[cfg(test)] mod … { … }` is blanked."""
    out, position = [], 0
    for found in TEST_MODULE.finditer(code):
        if found.start() < position:
            continue
        depth, end = 1, found.end()
        for brace in re.compile(r"[{}]").finditer(code, found.end()):
            depth += 1 if brace.group() == "{" else -1
            end = brace.end()
            if depth == 0:
                break
        inside = code[found.start() : end]
        out += [code[position : found.start()], "".join(c if c == "\n" else " " for c in inside)]
        position = end
    return "".join([*out, code[position:]])


class _Reader:
    def __init__(self, language: Language, text: str, code: str, literals: list[tuple[int, int]]) -> None:
        self.language, self.text, self.code, self.literals = language, text, code, literals
        self.labels: dict[str, set[str]] = {}

    def read(self) -> Iterator[Flow]:
        assigned = [
            (NAME.findall(next(filter(None, m.groupdict().values()), "")), m.start(), self._statement(m.end()))
            for m in islice(self.language.assigns.finditer(self.code), MAX_NAMES)
        ]
        if len(assigned) == MAX_NAMES or len(self.text) > MAX_CHARS:
            yield Flow("unread", "a file is too long to be read", 0, 1)
        ways = [
            (names, set(NAME.findall(self.code[start:end])), self._read_here(start, end))
            for names, start, end in assigned
        ]
        for _ in range(ROUNDS):
            grew = False
            for names, used, here in ways:
                labels = self._derived(set(here).union(*(self.labels.get(name, ()) for name in used)), "reads" in here)
                for name in names if labels else ():
                    known = self.labels.setdefault(name, set())
                    if name not in NO_NAMES and not labels <= known:
                        known |= labels
                        grew = True
            if not grew:
                break
        yield from self._sinks()
        yield from self._signs()
        yield from self._choices()

    def _statement(self, start: int) -> int:
        """Where the expression that begins at `start` ends: at a `;` or a line's end outside brackets."""
        depth = 0
        for i in range(start, min(len(self.code), start + MAX_STATEMENT)):
            c = self.code[i]
            if c in "([{":
                depth += 1
            elif c in ")]}":
                depth -= 1
                if depth < 0:
                    return i
            elif c == ";" and depth <= 0:
                return i
            elif c == "\n" and depth <= 0:
                rest = self.code[i : i + 80].lstrip()
                if rest[:1] not in (".", "?", "+", "&", "|") and self.code[start:i].strip():
                    return i
        return min(len(self.code), start + MAX_STATEMENT)

    def _texts(self, start: int, end: int) -> Iterator[str]:
        """Each literal, and literals that are put together."""
        joined, parts, position, listed = "", 0, -1, False
        for first, last in self.literals[bisect_left(self.literals, (start, 0)) :]:
            if first >= end:
                break
            text = self.text[first + 1 : last - 1]
            yield text
            between = LISTED if listed else JOINS
            if not (position >= 0 and between.fullmatch(self.code, position, first)):
                if parts > 1:
                    yield joined
                joined, parts = "", 0
                listed = self.code[max(0, first - 20) : first].rstrip().endswith("concat!(")
            joined, parts, position = joined + text, parts + 1, last
        if parts > 1:
            yield joined

    def _of(self, start: int, end: int) -> set[str]:
        """Labels of an expression: of the names in it, and of what it reads."""
        here = self._read_here(start, end)
        names = set(NAME.findall(self.code[start:end]))
        return self._derived(set(here).union(*(self.labels.get(name, ()) for name in names)), "reads" in here)

    def _read_here(self, start: int, end: int) -> frozenset[str]:
        """Labels that the expression has whatever its names stand for."""
        piece = self.code[start:end]
        labels: set[str] = set()
        if self.language.own.search(piece):
            labels.add("own")
        texts = [text for text in self._texts(start, end) if len(text) < 200]
        if any(TEST_PATH.search(text) for text in texts):
            labels.add("test")
        if any(self.language.source_text.search(text) for text in texts):
            labels.add("source-path")
        if self.language.sources.search(piece):
            labels.add("reads")
        if self.language is JAVASCRIPT and ".toString()" in piece and self.language.executes.search(piece):
            labels.add("source")
        return frozenset(labels)

    @staticmethod
    def _derived(labels: set[str], reads: bool) -> set[str]:
        labels.discard("reads")
        if reads and labels & {"own", "source-path"}:
            labels.add("source")
        if reads and "test" in labels:
            labels.add("test-text")
        return labels

    def _sinks(self) -> Iterator[Flow]:
        language = self.language
        seen: set[str] = set().union(*self.labels.values()) if self.labels else set()
        for found in islice(language.executes.finditer(self.code), MAX_HITS):
            end = self._statement(found.end())
            labels = self._of(found.start(), end)
            if labels & {"source", "test-text"} or ("own" in labels and not found.group().startswith("import")):
                kind: Kind = "reads-tests" if "test-text" in labels else "rewrites-itself"
                yield Flow(kind, "text of source files is executed", found.start(), min(end, found.end() + 120))
        for found in islice(language.sources.finditer(self.code), MAX_HITS):
            end = self._statement(found.end())
            labels = self._of(found.start(), end)
            if "test-text" in labels:
                yield Flow("reads-tests", "product code reads test files", found.start(), min(end, found.end() + 120))
        for found in islice(language.writes.finditer(self.code), MAX_HITS):
            end = self._statement(found.end())
            labels = self._of(found.start(), end)
            if labels & {"own", "source-path"} and "source" in seen | labels:
                yield Flow(
                    "rewrites-itself",
                    "source files are written at run time",
                    found.start(),
                    min(end, found.end() + 120),
                )
            elif any(
                re.search(r"(^|/)(junit|test-?results?|report)[\w-]*\.xml$", text)
                for text in self._texts(found.start(), end)
            ):
                yield Flow(
                    "reaches-runner",
                    "a report of tests is written by the product",
                    found.start(),
                    min(end, found.end() + 120),
                )
        for found in islice(language.runs.finditer(self.code), MAX_HITS):
            end = self._statement(found.end())
            texts = list(self._texts(found.start(), end))
            if any(language.tool.search(text) for text in texts):
                about = any(re.search(r"\b(test|run|build|--test|eval|-e)\b", text) for text in texts)
                labels = self._of(found.start(), end)
                if about and (
                    labels & {"source", "test", "own", "source-path"}
                    or "source" in seen
                    or any(re.search(r"\btest\b", text) for text in texts)
                ):
                    yield Flow(
                        "runs-tests",
                        "product code starts the tool chain on sources or tests",
                        found.start(),
                        found.end(),
                    )

    def _signs(self) -> Iterator[Flow]:
        for item in self.language.signs:
            for found in islice(item.regex.finditer(self.code), MAX_HITS):
                first = self.code.rfind("\n", 0, found.start() + 1) + 1
                end = max(found.end(), self._statement(found.end()))
                if (
                    item.literal is not None
                    and item.literal.pattern
                    and not any(item.literal.search(text) for text in self._texts(found.start(), end))
                ):
                    continue
                if item.unless is not None and item.unless.search(self.code[max(0, first - 80) : found.end() + 60]):
                    continue
                yield Flow(item.kind, item.note, found.start(), found.end())

    def _choices(self) -> Iterator[Flow]:
        """A collection of functions, gone through where each result is compared."""
        opening, function = CANDIDATES[self.language]
        for found in islice(opening.finditer(self.code), MAX_HITS):
            end = self._statement(found.end("name"))
            if len(function.findall(self.code[found.end() : end])) < 2:
                continue
            name = re.escape(found["name"])
            uses = re.compile(
                rf"\b{name}(\.|\s{{0,9}}\.\s{{0,9}}){USES}\b|\b(of|range|in)\s{{1,9}}&?{name}\b|\b{name}\["
            )
            for use in islice(uses.finditer(self.code), MAX_HITS):
                body = self.code[use.start() : use.start() + 600]
                if (COMPARES.search(body) and EXPECTED.search(body)) or self._tried(use.start()):
                    note = "the implementation that gives expected values is kept"
                    yield Flow("chooses-candidate", note, found.start(), found.end())
                    break

    def _tried(self, start: int) -> bool:
        """The candidate is called with a literal in a condition: a sample of the product's own."""
        found = LOOP_NAME.search(self.code[max(0, start - 60) : start]) or CALLBACK_NAME.match(
            self.code[start : start + 120]
        )
        if found is None or found["name"] in NO_NAMES:
            return False
        name = re.escape(found["name"])
        sample = re.compile(rf"(?<![.\w]){name}\(\s*(?:&?\[|[\"'`\d])[^\n]{{0,80}}(?:===?|!==?|&&)")
        return bool(sample.search(self.text[start : start + 400]))
