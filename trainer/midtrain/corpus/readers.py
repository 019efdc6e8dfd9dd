"""Reading documents from folders, JSONL, Parquet and git repositories. Nothing of a source is executed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.midtrain.corpus.documents import LANGUAGES, MAX_CHARS, Document, language_of

SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", "dist", "build"}
)
TEXT_FIELDS = ("text", "content", "code")
PATH_FIELDS = ("path", "max_stars_repo_path", "file", "id")
LICENCE_FIELDS = ("license", "licence", "license_type")
GIT_SECONDS = 120.0
GIT_BATCH = 256
"""Files read at once; each has at most MAX_CHARS bytes."""
GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")
"""A repository's own configuration cannot make a listing run programs."""


class SourceUnreadable(ValueError):
    """A source cannot be read. The message names it, what was found, and the remedy."""


def read_source(path: Path) -> Iterator[Document]:
    """Documents of one source in a fixed order: `*.jsonl`, `*.parquet`, a git repository, or any other folder.

    Raises SourceUnreadable.
    """
    if path.is_file() and path.suffix == ".jsonl":
        return read_jsonl(path)
    if path.is_file() and path.suffix == ".parquet":
        return read_parquet(path)
    if is_git(path):
        return read_git(path)
    if path.is_dir():
        return read_folder(path)
    raise SourceUnreadable(f"{path} is no folder, git repository, .jsonl or .parquet file; check the path")


def is_git(path: Path) -> bool:
    """Whether it is a repository, with a work tree or bare."""
    return path.is_dir() and ((path / ".git").exists() or ((path / "HEAD").is_file() and (path / "objects").is_dir()))


def read_folder(root: Path) -> Iterator[Document]:
    """Regular text files of known languages, in path order; links are not followed."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            file = Path(folder) / name
            if file.suffix.lower() not in LANGUAGES or file.is_symlink() or file.stat().st_size > MAX_CHARS:
                continue
            made = _document(file.read_bytes(), printable(file.relative_to(root).as_posix(), 400), root.name)
            if made is not None:
                yield made


def read_git(root: Path) -> Iterator[Document]:
    """Files of the commit at HEAD, in path order, read from its objects: not the work tree, and no link's target."""
    revision = git(root, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
    licence = ""
    listing = git(root, "ls-tree", "-r", "-z", "-l", revision).split(b"\0")
    wanted: list[tuple[str, str]] = []
    for entry in filter(None, listing):
        head, _, raw = entry.partition(b"\t")
        mode, kind, blob, size = head.split()
        path = printable(raw.decode("utf-8", "replace"), 400)
        if kind == b"blob" and mode in (b"100644", b"100755") and int(size) <= MAX_CHARS:
            if Path(path).suffix.lower() in LANGUAGES:
                wanted.append((path, blob.decode()))
            if path.split(".")[0].upper() in ("LICENSE", "LICENCE", "COPYING"):
                (text,) = _blobs(root, [blob.decode()])
                licence = printable(text.decode("utf-8", "replace").strip().split("\n")[0].strip(), 200)
    wanted.sort()
    source = root.resolve().name.removesuffix(".git")
    for first in range(0, len(wanted), GIT_BATCH):
        some = wanted[first : first + GIT_BATCH]
        for (path, _), data in zip(some, _blobs(root, [name for _, name in some]), strict=True):
            made = _document(data, path, source, revision=revision, licence=licence)
            if made is not None:
                yield made


def _blobs(root: Path, names: list[str]) -> Iterator[bytes]:
    """Contents of blobs, one git process for all of them: a process each costs more than the reading."""
    rest = memoryview(git(root, "cat-file", "--batch", say="\n".join(names).encode()))
    for _ in names:
        head, _, _ = bytes(rest[:128]).partition(b"\n")
        at, size = len(head) + 1, int(head.rsplit(b" ", 1)[1])
        yield bytes(rest[at : at + size])
        rest = rest[at + size + 1 :]


def read_jsonl(file: Path) -> Iterator[Document]:
    """An object a line, with its text under `text`, `content` or `code`. Raises SourceUnreadable naming the line."""
    with file.open(encoding="utf-8", errors="surrogateescape") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SourceUnreadable(
                    f"{file.name}, line {number}: not JSON ({error}); mend or remove the line"
                ) from error
            yield from _row(row, file, number)


def read_parquet(file: Path) -> Iterator[Document]:
    """Rows with the same fields as JSONL, a row group at a time. Raises SourceUnreadable (pyarrow is an extra)."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise SourceUnreadable(
            f"{file.name}: reading Parquet needs the extra `parquet` (pyarrow); install it"
        ) from error
    try:
        with ParquetFile(file) as table:
            number = 0
            for batch in table.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield from _row(row, file, number)
    except (ArrowException, OSError) as error:
        raise SourceUnreadable(f"{file.name} is not a readable Parquet file: {error}") from error


def _row(row: Any, file: Path, number: int) -> Iterator[Document]:
    text = (
        next((row[name] for name in TEXT_FIELDS if isinstance(row.get(name), str)), None)
        if isinstance(row, dict)
        else None
    )
    if text is None:
        raise SourceUnreadable(f"{file.name}, row {number}: no text under {', '.join(TEXT_FIELDS)}; rename the field")
    if not _is_unicode(text):
        raise SourceUnreadable(f"{file.name}, row {number}: its text is not valid Unicode; save it as UTF-8")
    path = printable(str(next((row[name] for name in PATH_FIELDS if row.get(name)), f"{number}")), 400)
    language = printable(str(row.get("language") or row.get("lang") or language_of(path)).lower(), 40)
    licence = printable(str(next((row[name] for name in LICENCE_FIELDS if row.get(name)), "")), 200)
    if text.strip() and len(text) <= MAX_CHARS:
        yield Document(text=text, path=path, source=file.name, language=language, licence=licence)


def printable(text: str, limit: int) -> str:
    """The same for a database and a page: without control characters and halves of characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:limit])


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _document(data: bytes, path: str, source: str, *, revision: str = "", licence: str = "") -> Document | None:
    """None for what is empty or no UTF-8 text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if not text.strip() or "\0" in text:
        return None
    return Document(text=text, path=path, source=source, language=language_of(path), revision=revision, licence=licence)


def git(root: Path, *arguments: str, say: bytes = b"") -> bytes:
    """What git says of a repository, whose own configuration and hooks run nothing. Raises SourceUnreadable."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
    }
    try:
        done = subprocess.run(
            [*GIT, "-c", f"safe.directory={root.resolve()}", "-C", str(root), *arguments],
            input=say, capture_output=True, timeout=GIT_SECONDS, env=environment, check=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise SourceUnreadable("git is not installed; install it, or export the repository as a folder") from error
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode("utf-8", "replace").strip().split("\n")[-1]
        raise SourceUnreadable(f"{root} cannot be read by git: {said or error}; check it with `git fsck`") from error
    return done.stdout
