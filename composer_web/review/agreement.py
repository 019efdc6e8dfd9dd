"""Chance-corrected agreement between reviewers.

Krippendorff's alpha (Content Analysis, 2004, chapter 11): 1 is agreement without exception, 0 what chance gives, below 0
systematic disagreement. It takes any number of reviewers and items that some of them left out. Cohen's kappa (1960) is
for two people who labelled the same items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Literal

Level = Literal["nominal", "interval"]


def alpha(units: Sequence[Sequence[str]], level: Level = "nominal") -> float | None:
    """Over the answers to each item. None when no item has two answers, or when all answers are the same one.

    `interval` reads the answers as numbers and weighs a difference by its square.
    """
    pairable = [unit for unit in units if len(unit) >= 2]
    totals = Counter(value for unit in pairable for value in unit)
    count = totals.total()
    if len(totals) < 2:
        return None
    observed = sum(_spread(Counter(unit), level) / (len(unit) - 1) for unit in pairable) / count
    expected = _spread(totals, level) / (count * (count - 1))
    return 1.0 - observed / expected


def _spread(counts: Counter[str], level: Level) -> float:
    """Sum of the differences of all ordered pairs of answers."""
    return sum(counts[a] * counts[b] * _difference(a, b, level) for a, b in permutations(counts, 2))


def _difference(a: str, b: str, level: Level) -> float:
    return (float(a) - float(b)) ** 2 if level == "interval" else 1.0


def kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Cohen's kappa of two people over the items that both labelled. None when there is none, or one answer only."""
    if not pairs:
        return None
    count = len(pairs)
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    by_chance = sum(first[value] * second[value] for value in first) / count**2
    if by_chance == 1.0:
        return None
    return (sum(a == b for a, b in pairs) / count - by_chance) / (1.0 - by_chance)


def share(units: Sequence[Sequence[str]]) -> float | None:
    """Share of items with at least two answers whose answers all agree. None without such items."""
    pairable = [unit for unit in units if len(unit) >= 2]
    return sum(len(set(unit)) == 1 for unit in pairable) / len(pairable) if pairable else None
