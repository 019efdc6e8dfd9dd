"""Recent commits of a git repository as data: the changes of each, file by file. Nothing is run or checked out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from sandbox.errors import PackageError
from sandbox.network.guard import Guard
from sandbox.repositories.files import MAX_FILE_BYTES, check_relative_path
from sandbox.repositories.git import REVISION, SECONDS, Git

DEPTH = 400
"""Commits that are fetched."""
MAX_CHANGED = 20
"""Files of a commit: larger ones are no single piece of work."""
NOTHING = "0" * 40


@dataclass(frozen=True, slots=True)
class Change:
    """One file before and after a commit; None where it was not there."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Commit:
    id: str
    subject: str
    changes: tuple[Change, ...]


def commits(
    location: str,
    *,
    revision: str = "",
    token: SecretStr | None = None,
    guard: Guard | None = None,
    depth: int = DEPTH,
) -> tuple[Commit, ...]:
    """Commits with one parent, the newest first; those with too many files, or code that is no text, are left out.

    `location`: an address, or a path that was checked (`git.check_path`). Raises PackageError, PackageUnavailable.
    """
    if revision and not REVISION.fullmatch(revision):
        raise PackageError(f"revision {revision!r} is not a branch, tag or commit", remedy="Give a plain name or hash")
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        bare = Path(folder) / "bare"
        run = Git(bare, location, token, guard)
        run("init", "-q", "--bare", str(bare), seconds=30.0)
        options = ("-q", f"--depth={depth}", "--no-tags", "--no-recurse-submodules")
        run("fetch", *options, "--", location, revision or "HEAD", seconds=SECONDS)
        # One line a file after a line a commit; a root or the edge of what was fetched has no parent to compare with.
        shape = ("--no-merges", "--raw", "--no-abbrev", "--no-renames", "--format=%x01%H %P%n%s")
        told = run("log", *shape, "FETCH_HEAD", seconds=SECONDS).decode("utf-8", "replace")
        found = [entry for part in told.split("\x01")[1:] if (entry := _entry(part)) is not None]
        wanted = sorted({blob for _, _, files in found for _, *blobs in files for blob in blobs} - {NOTHING})
        texts = dict(zip(wanted, _texts(run, wanted), strict=True))
    texts[NOTHING] = None
    made = []
    for digest, subject, files in found:
        # What is no text (a picture, say) plays no part in the commit; code that is none spoils it.
        read = [file for file in files if all(blob == NOTHING or texts[blob] is not None for blob in file[1:])]
        if read and not any(path.endswith(".py") for path, *_ in files if path not in {one for one, *_ in read}):
            changes = tuple(Change(path, texts[before], texts[after]) for path, before, after in read)
            made.append(Commit(digest, subject, changes))
    return tuple(made)


def _entry(part: str) -> tuple[str, str, list[tuple[str, str, str]]] | None:
    """(commit, subject, [(path, blob before, blob after)]) of one commit of the log; None for what is not used."""
    head, subject, *rest = part.split("\n")
    ids = head.split()
    files = []
    for line in filter(None, rest):
        fields, _, path = line.partition("\t")
        modes = fields.split()
        try:
            check_relative_path(path)
        except ValueError:
            return None
        # Links and submodules are no texts; a quoted name is one that no task can carry. The rest of the commit may do.
        if path.startswith('"') or not {modes[0][1:], modes[1]} <= {"100644", "100755", "000000"}:
            if path.rstrip('"').endswith(".py"):
                return None
            continue
        files.append((path, modes[2], modes[3]))
    if len(ids) != 2 or not 0 < len(files) <= MAX_CHANGED:
        return None
    return ids[0], subject, files


def _texts(run: Git, blobs: Iterable[str]) -> list[str | None]:
    """The texts of blobs; None for one that is too large or not UTF-8."""
    data = run("cat-file", "--batch", seconds=SECONDS, stdin="".join(f"{blob}\n" for blob in blobs).encode())
    found: list[str | None] = []
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        content = data[end + 1 : end + 1 + size]
        at = end + size + 2
        try:
            found.append(content.decode() if size <= MAX_FILE_BYTES else None)
        except UnicodeDecodeError:
            found.append(None)
    return found
