"""Numbers that people and addresses give as text: one rule of what is one, whatever the answer to anything else."""

from __future__ import annotations

from collections.abc import Iterable

COUNT = 9
"""Digits of what counts something: turns, rollouts, steps."""
ROW_ID = 17
"""Digits that certainly fit a row id."""


def whole(text: str, *, digits: int = COUNT) -> int | None:
    """A whole number of at most so many decimal digits; None for anything else. (`isdigit` also takes ², which is none.)"""
    return int(text) if text.isdecimal() and len(text) <= digits else None


def row_ids(texts: Iterable[str]) -> list[int]:
    """Those of the texts that may be ids of rows, once each, in order."""
    found = (whole(text, digits=ROW_ID) for text in texts)
    return list(dict.fromkeys(pk for pk in found if pk is not None))
