"""Tokenizer that decodes a trajectory's token ids."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from trainer.stamps import TOKENIZER, Stamp, stamp


def tokenizer(folder: Path) -> Tokenizer | None:
    """Tokenizer of a policy folder. None if this machine has none; ids are shown instead."""
    return _tokenizer(folder, stamp(folder, TOKENIZER))


@lru_cache(maxsize=8)
def _tokenizer(folder: Path, _files: Stamp) -> Tokenizer | None:
    file = folder / "tokenizer.json"
    return Tokenizer.from_file(str(file)) if file.is_file() else None
