"""Whether the files of a folder are still those that were read: what is remembered of a folder is remembered with their stamps.

A policy folder may be overwritten (an export again to the same place), and a process that remembered it by its path alone
would go on with what was there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

CONFIG = ("config.json",)
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
Stamp = tuple[tuple[int, int, int] | None, ...]


def stamp(folder: Path, names: Sequence[str]) -> Stamp:
    """Time of the last write, size and inode of each file; None of one that is not there."""
    return tuple(_of(f"{folder}/{name}") for name in names)


def _of(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
