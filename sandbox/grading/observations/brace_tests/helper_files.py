"""Helper files of JavaScript tests without what a run makes no use of: it may hold what other tests expect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from sandbox.grading.canaries.scanning import arguments_after, mask
from sandbox.grading.observations.brace_tests.braces import Edit, applied
from sandbox.grading.observations.brace_tests.deciding import EXPORTED
from sandbox.grading.observations.brace_tests.statements import ANY_WORD, TESTS, Statement, statements

OBJECT = re.compile(rb"(?:module\.exports\s*=|export\s+default)\s*(\{)")
KEY = re.compile(rb"\s*([A-Za-z_$][\w$]*)\s*(?P<colon>:?)")


def pruned(helpers: Mapping[str, str], users: Iterable[str]) -> dict[str, str]:
    """`helpers` (path → text) with values and functions blanked that neither `users`, as text, nor the rest of them name."""
    words: set[bytes] = set()
    for text in users:
        words |= _used(text.encode())
    read = {path: _Helper(text.encode()) for path, text in helpers.items()}
    size = -1
    while size != len(words):
        size = len(words)
        for helper in read.values():
            words |= helper.mentions(words)
    return {path: applied(helper.text, list(helper.blanks(words))).decode() for path, helper in read.items()}


def _used(text: bytes) -> set[bytes]:
    """What a test file names, but for what it only loads."""
    renamed = re.compile(rb":|\bas\b")
    used = (one for one in statements(text) if one.kind != "import" or renamed.search(one.said))
    return set[bytes]().union(*(one.fields for one in used))


class _Helper:
    def __init__(self, text: bytes) -> None:
        self.text = text
        self._code = mask(text, TESTS.syntax).code
        self._statements = [one for one in statements(text) if one.kind != "import"]

    def mentions(self, words: set[bytes]) -> set[bytes]:
        """What the statements mention that are made use of."""
        found: set[bytes] = set()
        for one in self._statements:
            if (fields := self._fields(one)) is not None:
                spans = [span for name, span, _ in fields if name in words]
                found |= {word for span in spans for word in ANY_WORD.findall(self._code[slice(*span)])}
            elif not self._is_idle(one, words):
                found |= one.fields - one.declares
        return found

    def blanks(self, words: set[bytes]) -> Iterator[Edit]:
        for one in self._statements:
            if (fields := self._fields(one)) is not None:
                yield from (
                    Edit(*span, f" {name.decode()}: undefined") for name, span, named in fields if named and name not in words
                )  # fmt: skip
            elif self._is_idle(one, words):
                names = b", ".join(sorted(one.declares)).decode()
                head = "export " if one.said.startswith(b"export") else ""
                yield Edit(one.start, one.end, f"{head}let {names};" if names else "")

    def _fields(self, one: Statement) -> list[tuple[bytes, tuple[int, int], bool]] | None:
        """Of `module.exports = {…}`: each field, where it stands, and whether it is written with a value."""
        head = OBJECT.match(self._code, one.start, one.end)
        if head is None:
            return None
        keys = ((KEY.match(self._code, *span), span) for span in arguments_after(self._code, head.start(1)))
        return [(key[1], span, bool(key["colon"])) for key, span in keys if key is not None]

    def _is_idle(self, one: Statement, words: set[bytes]) -> bool:
        if one.kind in ("value", "function"):
            return bool(one.declares) and one.declares.isdisjoint(words) and not one.said.startswith(b"export default")
        exported = EXPORTED.match(one.said)
        return exported is not None and exported[1] not in words
