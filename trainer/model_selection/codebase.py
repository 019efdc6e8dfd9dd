"""A codebase as a base model is measured on it: its files as they are, and which of their lines are recent.

What was pushed lately is what a pre-trained model is least likely to have seen, so the lines that came within the last commits
count a second time, alone. They are read where they stand, after the file's older lines.

Numbers are in bits a byte of the text, which no tokenizer changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainer.midtrain.corpus.documents import Document
from trainer.midtrain.corpus.readers import git, is_git, read_source
from trainer.model_selection.scores import FileBits

COMMITS = 50
"""Commits that are recent, where nothing else is asked."""
WINDOW, MAX_BYTES, ITEMS, CHANGES = 512, 256 << 10, 16, 3
"""What is measured where nothing else is asked: tokens seen at a time, bytes of the codebase, questions of state tracking,
and diffs of each."""
HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class NothingToMeasure(ValueError):
    """A codebase has not what is asked for. The message says what was found, and the remedy."""


class Recent(BaseModel):
    """Which commits are recent: the last so many, or those since a date. Neither: none is."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    commits: int = Field(default=0, ge=0)
    since: str = Field(default="", pattern=r"^(\d{4}-\d{2}-\d{2}([T ][0-9:]+(Z|[+-]\d{2}:?\d{2})?)?)?$")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of characters of the whole text, [start, stop), that belongs to file number `file`."""

    start: int
    stop: int
    file: int
    recent: bool


@dataclass(frozen=True, slots=True)
class Codebase:
    name: str
    text: str
    """Files in alphabetical order, each under its name."""
    files: list[str]
    pieces: list[Piece]
    """In order and without gaps."""
    revision: str = ""
    before: str = ""
    """The commit that recent lines came after; empty where none is recent."""
    repository: Path | None = None
    """Where its history is, if it is a git repository."""

    def texts(self) -> Iterator[tuple[str, str]]:
        """(path, text) of each file."""
        for number, path in enumerate(self.files):
            lines = [self.text[piece.start : piece.stop] for piece in self.pieces if piece.file == number]
            yield path, "".join(lines[1:])[:-1]  # without its name and the line that ends it

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_codebase(path: Path, recent: Recent, *, max_bytes: int, name: str = "") -> Codebase:
    """At most about `most_bytes` of it, files with recent lines first; `name` is what people call it, else that of the folder.
    Raises SourceUnreadable, NothingToMeasure."""
    documents = list(read_source(path))
    if not documents:
        raise NothingToMeasure(f"{path} holds no text of a known language; check the path, and what is committed")
    before, lines = _window(path, recent) if recent.commits or recent.since else ("", {})
    touched = {document.path for document in documents if lines.get(document.path)}
    if before and not touched:
        asked = f"since {recent.since}" if recent.since else f"in the last {recent.commits} commits"
        raise NothingToMeasure(
            f"{path}: no line of a text file was added {asked}; ask for more commits, or an earlier date"
        )
    kept: list[Document] = []
    size = 0
    for document in sorted(documents, key=lambda d: (d.path not in touched, d.digest)):  # else any, the same each time
        length = len(document.text.encode())
        if kept and size + length > max_bytes:
            continue
        kept.append(document)
        size += length
    made = _laid_out(name or path.resolve().name, sorted(kept, key=lambda d: (d.path, d.source)), lines, before)
    return replace(made, repository=path if is_git(path) else None)


def _laid_out(name: str, documents: Sequence[Document], lines: dict[str, set[int]], before: str) -> Codebase:
    text, at = [], 0
    pieces: list[Piece] = []
    for number, document in enumerate(documents):
        new = lines.get(document.path, set())
        parts = [f"# {document.path}\n", *re.findall(r"[^\n]*\n|[^\n]+", document.text), "\n"]  # as git counts lines
        for line, part in enumerate(parts):  # line 0 is the name
            pieces.append(Piece(at, at + len(part), number, line in new))
            at += len(part)
            text.append(part)
    return Codebase(
        name, "".join(text), [document.path for document in documents], pieces, documents[0].revision, before
    )


def _window(path: Path, recent: Recent) -> tuple[str, dict[str, set[int]]]:
    """The commit before the recent ones, and the numbers of the lines that came since, by file."""
    if not is_git(path):
        raise NothingToMeasure(f"{path} is no git repository, so none of it is recent; ask for 0 commits, or give one")
    history = git(path, "rev-list", "--first-parent", "HEAD").decode().split()
    if len(history) == 1:
        raise NothingToMeasure(
            f"{path} has a history of one commit, so none of it is recent; fetch the rest (`git fetch --unshallow`), "
            "or ask for 0 commits"
        )
    before = history[min(recent.commits, len(history) - 1)]
    if recent.since:
        moment = recent.since if len(recent.since) > 10 else f"{recent.since}T00:00:00Z"
        older = git(path, "rev-list", "--first-parent", "-n", "1", f"--before={moment}", "HEAD").decode().strip()
        before = older or history[-1]
        if before == history[0]:
            newest = git(path, "show", "-s", "--format=%cs", "HEAD").decode().strip()
            raise NothingToMeasure(f"{path} has no commit since {recent.since}, the newest is of {newest}; ask earlier")
    options = ("--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--src-prefix=a/")
    changes = git(path, "-c", "core.quotePath=false", "diff", *options, "--dst-prefix=b/", before, history[0])
    return before, dict(_added(changes))


def _added(changes: bytes) -> Iterator[tuple[str, set[int]]]:
    """Numbers of added lines by file, of a diff without context. Lines of a hunk are counted, never read as heads."""
    rows = iter(changes.split(b"\n"))
    path, found = "", set[int]()
    for row in rows:
        if row.startswith(b"+++ "):
            if found:
                yield path, found
            path, found = row[6:].rstrip(b"\t").decode("utf-8", "replace"), set()
        elif hunk := HUNK.match(row):
            old, new = (int(count or b"1") for count in (hunk[1], hunk[3]))
            found.update(range(int(hunk[2]), int(hunk[2]) + new))
            left = old + new
            while left:
                left -= not next(rows).startswith(b"\\")  # "\ No newline at end of file" is none
    if found:
        yield path, found


def by_file(codebase: Codebase, offsets: Sequence[tuple[int, int]], bits: Sequence[float]) -> list[FileBits]:
    """Bits of tokens, each given to the line in which it begins."""
    totals: list[dict[str, Any]] = [
        {"bits": 0.0, "bytes": 0, "recent_bits": 0.0, "recent_bytes": 0} for _ in codebase.files
    ]
    for piece in codebase.pieces:
        size = len(codebase.text[piece.start : piece.stop].encode())
        totals[piece.file]["bytes"] += size
        totals[piece.file]["recent_bytes"] += size if piece.recent else 0
    at = 0
    for (start, _), cost in zip(offsets, bits, strict=True):
        while start >= codebase.pieces[at].stop and at + 1 < len(codebase.pieces):
            at += 1
        piece = codebase.pieces[at]
        totals[piece.file]["bits"] += cost
        totals[piece.file]["recent_bits"] += cost if piece.recent else 0.0
    return [FileBits(path=path, **total) for path, total in zip(codebase.files, totals, strict=True)]
