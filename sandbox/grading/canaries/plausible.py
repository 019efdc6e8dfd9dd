"""Plausible expected values: the same type and about the same size as the real one, but built from none of it.

A value that differs from the real one in one letter or digit would reveal it.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import Any

from sandbox.grading.canaries.literals import FALLBACK_WORDS

TRIES = 20


def plausible(value: Any, words: Sequence[str], draw: random.Random) -> Any:
    """Another value like `value`, its texts made of `words`. Raises ValueError for what has no other value."""
    for _ in range(TRIES):
        made = _like(value, [*words, *FALLBACK_WORDS], draw)
        if made != value:
            return made
    raise ValueError(f"no other value like {type(value).__name__}")


def _like(value: Any, words: Sequence[str], draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        most = max(9, 3 * abs(value))
        return draw.randint(-most if value < 0 else 0, most)
    if isinstance(value, float):
        places = len(repr(value).partition(".")[2]) if "e" not in repr(value) else 2
        bound = max(4.0, 3 * abs(value)) if abs(value) < 1e300 else 4.0
        return round(draw.uniform(-bound if value < 0 else 0.0, bound), max(1, min(places, 6)))
    if isinstance(value, str):
        return _text(value, words, draw)
    if isinstance(value, bytes):
        return _text(value.decode("latin-1"), words, draw).encode("latin-1", "ignore")
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_items(list(value), words, draw))
    if isinstance(value, dict):
        keys = _items(list(value), words, draw)
        return {
            key: _like(item, words, draw)
            for key, item in zip(keys, _items(list(value.values()), words, draw), strict=False)
        }
    return value


def _items(items: list[Any], words: Sequence[str], draw: random.Random) -> list[Any]:
    """Other items, about as many; an empty list gets a few of the kind that lists have most."""
    if not items:
        return [draw.randint(0, 9) for _ in range(draw.randint(1, 2))]
    count = max(0 if len(items) > 1 else 1, len(items) + draw.choice((-1, 0, 0, 1)))
    return [_like(draw.choice(items), words, draw) for _ in range(count)]


def _text(value: str, words: Sequence[str], draw: random.Random) -> str:
    """A text with the same kinds of characters in the same order, its words others."""
    if not value:
        return draw.choice(words)[:4]
    if value.isalpha() and draw.random() < 0.8:
        known = [w for w in words if w != value and w.isalpha() and abs(len(w) - len(value)) <= max(2, len(value) // 2)]
        if known:
            word = draw.choice(known)
            return word.upper() if value.isupper() else word.capitalize() if value[:1].isupper() else word
    made = []
    for letter in value:
        for letters in (string.ascii_lowercase, string.ascii_uppercase, string.digits):
            if letter in letters:
                letter = draw.choice(letters)
                break
        made.append(letter)
    return "".join(made)
