"""Files that a command line names: those it reads, and those it writes."""

from __future__ import annotations

import codecs
import getpass
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from opencomposer.errors import UsageError


def read_text(name: str) -> str:
    """Content of a file; - is standard input. Raises UsageError."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from error


def read_json(name: str) -> Any:
    """Raises UsageError."""
    try:
        return json.loads(read_text(name))
    except ValueError as error:
        raise UsageError(f"{name} is not valid JSON: {error}") from error


def readable(name: str) -> Path:
    """A file to upload. Raises UsageError."""
    try:
        with Path(name).open("rb"):
            return Path(name)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error}") from error


@contextmanager
def packed(name: str) -> Iterator[Path]:
    """A file to upload; of a folder, a zip of the regular files in it. Raises UsageError."""
    folder = Path(name)
    if not folder.is_dir():
        yield readable(name)
        return
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, f"{folder.resolve().name}.zip")
        try:
            with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(folder.rglob("*")):
                    if path.is_file() and not path.is_symlink():
                        archive.write(
                            path, path.relative_to(folder.parent if (folder / "task.toml").is_file() else folder)
                        )
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {error}") from error
        yield made


def secret(prompt: str) -> str:
    """A secret that never stands on a command line: asked for on a terminal, else the first line of standard input."""
    return getpass.getpass(f"{prompt}: ") if sys.stdin.isatty() else sys.stdin.readline().strip()


def json_value(text: str) -> Any:
    """Text that is JSON means that value (3, true, null, ["a"]); other text means itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def assignment(word: str) -> tuple[str, Any]:
    """`name=value`. Raises UsageError."""
    name, separator, value = word.partition("=")
    if not separator or not name:
        raise UsageError(f"{word!r}: write name=value")
    return name, json_value(value)


class Target:
    """Where a download goes: a file, closed with the block, or the terminal."""

    def __init__(self, name: str, out: TextIO) -> None:
        """`-` is `out`. Raises UsageError."""
        self._out = out
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._file = None if name == "-" else _writable(name)

    def refuse_terminal(self, form: str) -> None:
        """Raises UsageError where a binary `form` would go to a terminal."""
        if self._file is None:
            raise UsageError(f"{form} is binary: name a file with -o")

    def write(self, data: bytes, /) -> None:
        if self._file is None:
            self._out.write(self._decode(data))
        else:
            self._file.write(data)

    def text(self, text: str) -> None:
        self.write(text.encode())

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _writable(name: str) -> BinaryIO:
    try:
        return Path(name).open("wb")
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error}") from error
