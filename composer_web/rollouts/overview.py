"""The overview of a transcript: one short line of facts for each turn, which the page draws as a strip and a list.

Made of the head alone; about 8 bytes a turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypedDict

from composer_web.rollouts.narrowing import MAX_TOOLS
from composer_web.rollouts.reading import TurnFacts

FAILED, FOUND, SUMMARY = 1, 2, 4
"""Bits of a turn's flags: an error, a finding, a summary."""
MAX_NAMES = 200
"""Tools with a name here: a policy may call anything a tool. The rest is one "other"."""


class Overview(TypedDict):
    """Turns from `since` on. Lists have an entry a turn."""

    since: int
    tools: list[str]
    """Names that `used` refers to, in the order in which they were first called, of all turns."""
    used: list[list[int]]
    """Indices of the tools that the turn called; none: a message."""
    flags: list[int]
    segments: list[int]


def overview(facts: Sequence[TurnFacts], found: Collection[int], since: int = 0) -> Overview:
    """`found` has the turns with findings."""
    places: dict[str, int] = {}
    for turn in facts:
        for name in turn.tools:
            if len(places) < MAX_NAMES:
                places.setdefault(name, len(places))
    tools = [*places, "other"] if len(places) == MAX_NAMES else list(places)
    rest = facts[since:]
    return {
        "since": since,
        "tools": tools,
        "used": [[places.get(name, MAX_NAMES) for name in turn.tools[:MAX_TOOLS]] for turn in rest],
        "flags": [
            FAILED * turn.failed | FOUND * (index in found) | SUMMARY * turn.summary
            for index, turn in enumerate(rest, since)
        ],
        "segments": [turn.segment for turn in rest],
    }
