"""Unified diffs from outside (imported oracles, the API): parsed strictly, applied exactly, never by a tool.

Accepted is what `git diff` writes for text: changes, creations, deletions, renames and copies of regular files, with
`a/` and `b/` before plain paths. Refused, with the line and a remedy: binary changes, links, submodules, odd modes,
quoted or absolute names, `..`, git's own configuration, context that does not match, and whatever is out of bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from sandbox.backends.base import FileChange, Patch
from sandbox.errors import TaskError
from sandbox.repositories.files import MAX_FILE_BYTES, check_relative_path
from sandbox.repositories.history import TreeFile

MAX_DIFF_BYTES = 16 << 20
MAX_FILES = 2000
MAX_LINES = 400_000
REGULAR, EXECUTABLE = b"100644", b"100755"
GIT_FILES = frozenset({".gitattributes", ".gitmodules"})
REMEDY = "Make the patch with `git diff` on a checkout of the task's repository"
HUNK = re.compile(rb"@@ -(\d{1,8})(?:,(\d{1,8}))? \+(\d{1,8})(?:,(\d{1,8}))? @@(?: .*)?")
HEADER = re.compile(rb"diff --git (?:a/(?P<old>.+)) (?:b/(?P<new>.+))")
MODE = re.compile(rb"(?P<what>old|new|new file|deleted file) mode (?P<mode>\d{6})")
MOVE = re.compile(rb"(?P<what>rename|copy) (?P<side>from|to) (?P<path>.+)")
IGNORED = re.compile(rb"(similarity|dissimilarity) index \d{1,3}%|index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}( \d{6})?")
NO_NEWLINE = b"\\ No newline at end of file"

Read = Callable[[str], TreeFile | None]
"""The pristine file at a path of the checkout, None where there is none."""


class PatchRefused(TaskError):
    """A diff that is not a plain text change of this checkout. The message names the line and what was found there."""

    def __init__(self, line: int, found: str) -> None:
        super().__init__(f"patch line {line}: {found}", remedy=REMEDY)
        self.line = line


@dataclass(slots=True)
class _FileDiff:
    line: int
    old: str | None = None
    new: str | None = None
    """Paths; None until known."""
    created: bool = False
    deleted: bool = False
    copied: bool = False
    executable: bool | None = None
    """None: as before."""
    hunks: list[_Hunk] = field(default_factory=list)


@dataclass(slots=True)
class _Hunk:
    line: int
    start: int
    """First old line, counted from 0."""
    old: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)


def parse_diff(data: bytes, read: Read) -> Patch:
    """The changes that a diff makes to the files that `read` gives. Raises PatchRefused."""
    if len(data) > MAX_DIFF_BYTES:
        raise PatchRefused(1, f"the patch has {len(data)} bytes; at most {MAX_DIFF_BYTES} are read")
    changes: dict[str, FileChange] = {}
    for count, diff in enumerate(_Parser(data).files()):
        if count == MAX_FILES:
            raise PatchRefused(diff.line, f"more than {MAX_FILES} files")
        for change in _changes(diff, read):
            if change.path in changes:
                raise PatchRefused(diff.line, f"{change.path!r} is changed twice")
            changes[change.path] = change

    def stays(path: str) -> bool:
        return changes[path].content is not None if path in changes else read(path) is not None

    for path in changes:
        parents = [path[:at] for at, letter in enumerate(path) if letter == "/"]
        if changes[path].content is not None and (blocked := next((p for p in parents if stays(p)), None)):
            raise PatchRefused(1, f"{path!r} lies inside the file {blocked!r}")
    return Patch(changes=tuple(changes[path] for path in sorted(changes)))


class _Parser:
    def __init__(self, data: bytes) -> None:
        self._lines = data.split(b"\n")
        if self._lines[-1] == b"":
            self._lines.pop()
        if len(self._lines) > MAX_LINES:
            raise PatchRefused(MAX_LINES, f"more than {MAX_LINES} lines")
        self._at = 0

    def files(self) -> Iterator[_FileDiff]:
        while (line := self._peek()) is not None:
            if line.startswith(b"diff --git ") or line.startswith(b"--- "):
                yield self._file()
            elif line.startswith((b"@@", b"+++ ", b"GIT binary patch", b"Binary files ")):
                self._refuse(f"{_shown(line)} outside a file")
            else:
                self._at += 1  # a message before, between or after the files, as mails have it

    def _file(self) -> _FileDiff:
        diff = _FileDiff(line=self._at + 1)
        line = self._peek()
        assert line is not None
        if line.startswith(b"diff --git "):
            names = HEADER.fullmatch(line)
            if names is None:
                self._refuse(f"{_shown(line)} names no plain paths `a/…` and `b/…`")
            self._at += 1
            self._extended(diff)
            same = len(names["old"]) == len(names["new"])
            if diff.old is None and diff.new is None and same and names["old"] == names["new"]:
                diff.old = diff.new = self._path(names["old"])
        line = self._peek()
        if line is not None and line.startswith(b"--- "):
            self._names(diff)
            while (line := self._peek()) is not None and line.startswith(b"@@"):
                diff.hunks.append(self._hunk())
            if not diff.hunks:
                self._refuse("a file without a change")
        if diff.old is None or diff.new is None:
            self._refuse("the paths of this file cannot be told")
        return diff

    def _extended(self, diff: _FileDiff) -> None:
        """The lines between `diff --git` and `---`."""
        while (line := self._peek()) is not None and not line.startswith((b"--- ", b"diff --git ", b"@@")):
            if line.startswith((b"GIT binary patch", b"Binary files ")):
                self._refuse("a binary change")
            if found := MODE.fullmatch(line):
                if found["mode"] not in (REGULAR, EXECUTABLE):
                    kind = {b"120000": "a symbolic link", b"160000": "a submodule"}.get(
                        found["mode"], "an odd file mode"
                    )
                    self._refuse(f"{kind} ({_shown(found['mode'])})")
                diff.created |= found["what"] == b"new file"
                diff.deleted |= found["what"] == b"deleted file"
                if found["what"] in (b"new", b"new file"):
                    diff.executable = found["mode"] == EXECUTABLE
            elif found := MOVE.fullmatch(line):
                path = self._path(found["path"])
                diff.copied |= found["what"] == b"copy"
                if found["side"] == b"from":
                    diff.old = path
                else:
                    diff.new = path
            elif not IGNORED.fullmatch(line):
                return  # a message after a file that has no hunks
            self._at += 1

    def _names(self, diff: _FileDiff) -> None:
        old = self._side(b"--- ", b"a/")
        new = self._side(b"+++ ", b"b/")
        if old is None and new is None:
            self._refuse("both sides are /dev/null")
        for name, known in ((old, diff.old), (new, diff.new)):
            if name is not None and known is not None and name != known:
                self._refuse(f"{name!r} here and {known!r} above")
        if old is not None and new is not None and old != new and diff.old is None:
            self._refuse(f"{old!r} becomes {new!r} without `rename from` and `rename to`")
        diff.created |= old is None
        diff.deleted |= new is None
        if (diff.created and old is not None) or (diff.deleted and new is not None):
            self._refuse("modes and names disagree on whether the file is created or deleted")
        diff.old = old if old is not None else new
        diff.new = new if new is not None else old

    def _side(self, mark: bytes, prefix: bytes) -> str | None:
        line = self._peek()
        if line is None or not line.startswith(mark):
            self._refuse(f"expected `{mark.decode()}`")
        assert line is not None
        name = line[len(mark) :].split(b"\t", 1)[0].removesuffix(b"\r")
        if name == b"/dev/null":
            self._at += 1
            return None
        if not name.startswith(prefix):
            self._refuse(f"{_shown(name)} does not begin with `{prefix.decode()}`")
        path = self._path(name[2:])
        self._at += 1
        return path

    def _path(self, name: bytes) -> str:
        if name.startswith(b'"'):
            self._refuse(f"quoted name {_shown(name)}: only plain names are accepted")
        try:
            path = check_relative_path(name.decode("utf-8"))
        except ValueError:
            self._refuse(f"path {_shown(name)} is not a plain relative path inside the repository")
        if path.rpartition("/")[2] in GIT_FILES:
            self._refuse(f"{path!r} configures git and is not part of a task's work")
        return path

    def _hunk(self) -> _Hunk:
        line = self._next()
        head = HUNK.fullmatch(line.removesuffix(b"\r"))
        if head is None:
            self._refuse(f"{_shown(line)} is not a hunk header", back=1)
        old_left, new_left = (int(head[n]) if head[n] is not None else 1 for n in (2, 4))
        start = int(head[1])
        hunk = _Hunk(line=self._at, start=start if old_left == 0 else start - 1)
        if hunk.start < 0:
            self._refuse("a hunk that starts before the first line", back=1)
        while old_left or new_left:
            text = self._next()
            kind, body = (text[:1], text[1:]) if text else (b" ", b"")
            if kind == b" " and old_left and new_left:
                old_left, new_left = old_left - 1, new_left - 1
                hunk.old.append(body + b"\n")
                hunk.new.append(body + b"\n")
            elif kind == b"-" and old_left:
                old_left -= 1
                hunk.old.append(body + b"\n")
            elif kind == b"+" and new_left:
                new_left -= 1
                hunk.new.append(body + b"\n")
            else:
                self._refuse(f"{_shown(text)} does not fit into its hunk", back=1)
            if (after := self._peek()) is not None and after.removesuffix(b"\r") == NO_NEWLINE:
                self._at += 1
                for side, kinds in ((hunk.old, b" -"), (hunk.new, b" +")):
                    if kind in kinds:
                        side[-1] = side[-1][:-1]
        return hunk

    def _peek(self) -> bytes | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _next(self) -> bytes:
        line = self._peek()
        if line is None:
            self._refuse("the patch ends inside a hunk")
        assert line is not None
        self._at += 1
        return line

    def _refuse(self, found: str, *, back: int = 0) -> NoReturn:
        raise PatchRefused(self._at + 1 - back, found)


def _changes(diff: _FileDiff, read: Read) -> Iterator[FileChange]:
    """One change, or two for a rename."""
    assert diff.old is not None
    assert diff.new is not None
    before = None if diff.created else read(diff.old)
    if diff.created and read(diff.new) is not None:
        raise PatchRefused(diff.line, f"{diff.new!r} is to be created and exists")
    if not diff.created and before is None:
        raise PatchRefused(diff.line, f"{diff.old!r} does not exist")
    content = _applied(diff, b"" if before is None else before.content)
    executable = diff.executable if diff.executable is not None else bool(before and before.executable)
    if diff.deleted:
        if content:
            raise PatchRefused(diff.line, f"{diff.old!r} is deleted, yet lines of it remain")
        assert before is not None
        yield FileChange(diff.old, None, before=before.content)
        return
    if diff.old == diff.new:
        yield FileChange(diff.new, content, executable, before=None if before is None else before.content)
        return
    if read(diff.new) is not None:
        raise PatchRefused(diff.line, f"{diff.new!r} is to be created and exists")
    assert before is not None
    if not diff.copied:
        yield FileChange(diff.old, None, before=before.content)
    yield FileChange(diff.new, content, executable)


def _applied(diff: _FileDiff, before: bytes) -> bytes:
    """`before` with the hunks made exactly where they say."""
    lines = _split(before)
    out: list[bytes] = []
    position = 0
    for hunk in diff.hunks:
        if hunk.start < position:
            raise PatchRefused(hunk.line, "hunks overlap or are out of order")
        if lines[hunk.start : hunk.start + len(hunk.old)] != hunk.old or hunk.start > len(lines):
            raise PatchRefused(hunk.line, f"the lines of this hunk are not those of {diff.old!r}")
        out += lines[position : hunk.start]
        out += hunk.new
        position = hunk.start + len(hunk.old)
    content = b"".join([*out, *lines[position:]])
    if len(content) > MAX_FILE_BYTES * 4:
        raise PatchRefused(diff.line, f"{diff.new!r} becomes larger than {MAX_FILE_BYTES * 4} bytes")
    if b"\0" in content:
        raise PatchRefused(diff.line, f"{diff.new!r} is not text")
    if any(not line.endswith(b"\n") for line in out[:-1]) or (out and lines[position:] and not out[-1].endswith(b"\n")):
        raise PatchRefused(diff.line, "a line without its end in the middle of a file")
    return content


def _split(content: bytes) -> list[bytes]:
    parts = content.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _shown(text: bytes) -> str:
    return repr(text[:80].decode("utf-8", "replace"))
