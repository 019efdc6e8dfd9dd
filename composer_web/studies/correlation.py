"""Spearman's rank correlation."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    return [sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values]


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation in [-1, 1]. None where it is not defined: for fewer than two pairs, or where one side does not vary."""
    if len(a) < 2:
        return None
    x, y = ranks(a), ranks(b)
    mx, my = fmean(x), fmean(y)
    above = sum((p - mx) * (q - my) for p, q in zip(x, y, strict=True))
    below = (sum((p - mx) ** 2 for p in x) * sum((q - my) ** 2 for q in y)) ** 0.5
    return above / below if below else None
