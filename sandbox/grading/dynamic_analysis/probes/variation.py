"""Other values of the same form: what a test would ask if its author had thought of another example.

The same value becomes the same other value everywhere in a variant, so that a key that is put is the key that is got.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

LETTERS, ACCENTS, SIGNS = "abcdefghijklmnoprstuvw", "áàâäãåçéèêëíîïñóôöúûü", "!?&#%@*+=;:/"
SMALLEST = 3
"""Numbers up to this one count, index and choose: they stay."""
Pool = Sequence[str]
"""Texts of the same tests: their words go well together."""


@dataclass(slots=True)
class Made:
    """Probes of the tests of one task."""

    files: dict[str, str] = field(default_factory=dict)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """File and place of an assertion → the function of the tests that it stands in."""


class Variant:
    """One way to make other values; the number 0 leaves all as they are."""

    def __init__(self, number: int, pool: Pool = ()) -> None:
        self.number = number
        self.words = sorted({word for text in pool if len(text) < 200 for word in text.split()})

    def integer(self, value: int, bound: int | None = None) -> int:
        """A neighbour; never above a `bound`, which a type may have."""
        if not self.number or 0 <= value <= SMALLEST:
            return value
        draw = random.Random(f"{self.number}:{value}")
        made = value + draw.choice((-2, -1, 1, 2, 3, 7))
        return value - 1 if bound is not None and made > bound else made

    def real(self, value: float) -> float:
        if not self.number:
            return value
        return round(value + random.Random(f"{self.number}:{value}").choice((-1, 0.5, 1, 2)), 3)

    def text(self, value: str) -> str:
        """Other letters of the same kind, the same words in another order, or other words of the same tests."""
        if not self.number or not value.strip():
            return value
        draw = random.Random(f"{self.number}:{value}")
        words = value.split(" ")
        way = self.number % 3
        if way == 1 and len(words) > 1:
            draw.shuffle(words)
        elif way == 2 and self.words:
            words = [draw.choice(self.words) if word and draw.random() < 0.5 else word for word in words]
        made = " ".join(words)
        return made if made != value else "".join(letter(c, draw) for c in value)


def letter(c: str, draw: random.Random) -> str:
    """Another character of the same kind, for about half of them; blanks, dots and dashes give form and stay."""
    if draw.random() < 0.5:
        return c
    for letters in (LETTERS, LETTERS.upper(), ACCENTS, ACCENTS.upper(), "123456789", SIGNS):
        if c in letters:
            return draw.choice(letters)
    return c
