"""Reading a patch as `sandbox.grading.patches.patch.render` writes it. Nothing is ever applied from this."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    """In the new file for an added line, in the old one for a removed line; from 1."""
    text: str
    offset: int
    """Where the text begins in the rendered patch."""


@dataclass(frozen=True, slots=True)
class Block:
    """Added lines without a gap: a piece of new code."""

    first: Line
    text: str


@dataclass(slots=True)
class FileDiff:
    path: str
    status: Literal["new", "changed", "deleted"] = "changed"
    added: list[Line] = field(default_factory=list)
    removed: list[Line] = field(default_factory=list)
    unreadable: str = ""
    """`Binary` or `Large` when the patch shows no lines of it."""
    executable: bool = False

    @property
    def blocks(self) -> Iterator[Block]:
        run: list[Line] = []
        for line in [*self.added, Line(-9, "", 0)]:
            if run and line.number != run[-1].number + 1:
                yield Block(run[0], "\n".join(item.text for item in run))
                run = []
            run.append(line)


def read(patch: str) -> list[FileDiff]:
    """The files of a rendered patch. Lines that belong to no hunk are headers; anything else is passed over."""
    files: list[FileDiff] = []
    old_path, old_left, new_left, old_line, new_line = "", 0, 0, 0, 0
    offset = 0
    for raw in patch.split("\n"):
        start, offset = offset, offset + len(raw) + 1
        if files and (old_left > 0 or new_left > 0):
            mark, text = raw[:1], raw[1:]
            if mark == "+":
                files[-1].added.append(Line(new_line, text, start + 1))
                new_line, new_left = new_line + 1, new_left - 1
            elif mark == "-":
                files[-1].removed.append(Line(old_line, text, start + 1))
                old_line, old_left = old_line + 1, old_left - 1
            elif mark in (" ", ""):
                old_line, old_left = old_line + 1, old_left - 1
                new_line, new_left = new_line + 1, new_left - 1
            continue
        if raw.startswith("diff --git "):
            files.append(FileDiff(_path(raw)))
        elif raw.startswith("new file mode ") and files:
            files[-1].status, files[-1].executable = "new", raw.endswith("755")
        elif raw.startswith("deleted file mode ") and files:
            files[-1].status = "deleted"
        elif raw.startswith(("Binary files ", "Large files ")) and files:
            files[-1].unreadable = raw.split(" ", 1)[0]
        elif raw.startswith("--- "):
            old_path = raw[4:]
        elif raw.startswith("+++ "):
            path = (raw[4:] if raw[4:] != "/dev/null" else old_path).removeprefix("b/").removeprefix("a/")
            if not files or files[-1].path != path:  # a patch without git's own header lines
                files.append(FileDiff(path))
        elif files and (hunk := HUNK.match(raw)):
            old_line, new_line = int(hunk[1]), int(hunk[3])
            old_left, new_left = int(hunk[2] or 1), int(hunk[4] or 1)
    return files


def _path(header: str) -> str:
    """`diff --git a/P b/P` → P; both halves name the same path."""
    rest = header.removeprefix("diff --git a/")
    return rest[: (len(rest) - 3) // 2]


def rebuild(before: str, file: FileDiff) -> str:
    """The text of a changed file: `before` without its removed lines and with the added ones."""
    gone = {line.number for line in file.removed}
    lines = [text for number, text in enumerate(before.split("\n"), start=1) if number not in gone]
    for line in sorted(file.added, key=lambda line: line.number):
        lines.insert(line.number - 1, line.text)
    return "\n".join(lines)
