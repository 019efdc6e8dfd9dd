"""Other values of the same kind as a literal, such that nothing shows which of the two was there first."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence

FALLBACK_WORDS = (
    "case", "result", "value", "empty", "nested", "order", "limit", "basic", "edge", "mixed", "input", "output", "index",
    "simple", "many", "single", "range", "default", "options", "state",
)  # fmt: skip
TRIES = 12


def other_int(text: str, others: Sequence[str], draw: random.Random) -> str | None:
    """A decimal integer near `text` in size: one of `others`, or a few more or less."""
    if not re.fullmatch(r"\d{1,9}", text):
        return None
    value = int(text)
    # Nothing much larger: a test that counts to it has to end.
    near = [t for t in others if re.fullmatch(r"\d{1,9}", t) and int(t) != value and int(t) <= 4 * value + 10]
    if near and draw.random() < 0.5:
        return draw.choice(near)
    step = draw.randint(1, 3)
    return str(value - step if value >= step and draw.random() < 0.5 else value + step)


def other_float(text: str, others: Sequence[str], draw: random.Random) -> str | None:
    if not re.fullmatch(r"\d{1,9}\.\d{1,9}", text):
        return None
    whole, _, part = text.partition(".")
    changed = other_int(whole, [], draw)
    return None if changed is None else f"{changed}.{part}"


def other_text(text: str, others: Sequence[str], draw: random.Random) -> str | None:
    """Another content for a string literal; `text` and `others` without quotes, escapes are left alone."""
    like = [t for t in others if t != text and "\\" not in t and abs(len(t) - len(text)) <= max(3, len(text) // 2)]
    if like and draw.random() < 0.6:
        return draw.choice(like)
    if "\\" in text or not text:
        return draw.choice(FALLBACK_WORDS)[: draw.randint(1, 3)] if not text else None
    for _ in range(TRIES):
        at = draw.randint(0, len(text) - 1)
        for letters in (string.ascii_lowercase, string.ascii_uppercase, string.digits):
            if text[at] in letters:
                changed = text[:at] + draw.choice(letters.replace(text[at], "")) + text[at + 1 :]
                return changed
    return text + draw.choice("aemnrst")


def words_of(names: Sequence[str]) -> list[str]:
    """The words that the names of a file's tests are made of, besides `test`."""
    found = {word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]{2,}", name)}
    return sorted((found | set(FALLBACK_WORDS)) - {"test", "tests"})
