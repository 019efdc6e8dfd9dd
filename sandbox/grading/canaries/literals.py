"""Words for building new names and values."""

from __future__ import annotations

import re
from collections.abc import Sequence

FALLBACK_WORDS = (
    "case", "result", "value", "empty", "nested", "order", "limit", "basic", "edge", "mixed", "input", "output", "index",
    "simple", "many", "single", "range", "default", "options", "state",
)  # fmt: skip
NEUTRAL_WORDS = (
    *FALLBACK_WORDS, "plain", "short", "long", "first", "second", "third", "last", "usual", "common", "rare", "small",
    "large", "given", "known", "whole", "part", "inner", "outer", "upper", "lower", "early", "late", "direct", "repeated",
    "normal", "special", "other", "same", "several", "few", "line", "entry", "record", "item", "field", "group", "step",
)  # fmt: skip
"""Names of tests that are drawn anew: the work can read them, so they are made of nothing that the old ones say."""


def words_of(names: Sequence[str]) -> list[str]:
    """The words that the names of a file's tests are made of, besides `test`."""
    found = {word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]{2,}", name)}
    return sorted((found | set(FALLBACK_WORDS)) - {"test", "tests"})
