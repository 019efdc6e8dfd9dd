"""Words for building new names and values."""

from __future__ import annotations

import re
from collections.abc import Sequence

FALLBACK_WORDS = (
    "case", "result", "value", "empty", "nested", "order", "limit", "basic", "edge", "mixed", "input", "output", "index",
    "simple", "many", "single", "range", "default", "options", "state",
)  # fmt: skip


def words_of(names: Sequence[str]) -> list[str]:
    """The words that the names of a file's tests are made of, besides `test`."""
    found = {word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]{2,}", name)}
    return sorted((found | set(FALLBACK_WORDS)) - {"test", "tests"})
