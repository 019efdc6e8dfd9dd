"""Files that a command line names."""

from __future__ import annotations

import sys
from pathlib import Path

from oc.launch import UsageError


def words_of(name: str) -> str:
    """What a file holds; - is standard input. Raises UsageError."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from error


def readable(name: str) -> Path:
    """A file to send. Raises UsageError."""
    try:
        with Path(name).open("rb"):
            return Path(name)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error}") from error
