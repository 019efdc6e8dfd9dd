"""Parsing of numbers in user input and URLs, with one rule for all callers."""

from __future__ import annotations

from collections.abc import Iterable

COUNT = 9
"""Maximum digits of a count: turns, rollouts, steps."""
ROW_ID = 17
"""Number of digits that always fits a row id."""


def whole(text: str, *, digits: int = COUNT) -> int | None:
    """Parse a whole number of at most `digits` decimal digits; None for other text. (`isdigit` would also accept ².)"""
    return int(text) if text.isdecimal() and len(text) <= digits else None


def row_ids(texts: Iterable[str]) -> list[int]:
    """Texts that are valid row ids, deduplicated, in order."""
    found = (whole(text, digits=ROW_ID) for text in texts)
    return list(dict.fromkeys(pk for pk in found if pk is not None))
