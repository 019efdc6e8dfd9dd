"""Overview of a transcript: compact facts per turn, drawn by the page as a strip and a list.

Computed from the head alone; about 8 bytes per turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypedDict

from composer_web.rollouts.trajectory import tool_colours
from composer_web.rollouts.trajectory.trajectory_store import TurnFacts
from composer_web.rollouts.trajectory.turn_filters import MAX_TOOLS

FAILED, FOUND, SUMMARY = 1, 2, 4
"""Bit flags of a turn: an error, a finding, a summary."""
MAX_NAMES = 200
"""Maximum number of tools listed by name; the rest is "other". A policy may invent tool names."""


class Overview(TypedDict):
    """Turns from `since` on. Each list has one entry per turn."""

    since: int
    tools: list[str]
    """Tool names that `used` indexes, in order of first call over all turns."""
    colours: list[int]
    """Class `tool-N` of each of them."""
    used: list[list[int]]
    """Indices of the tools called in the turn. Empty for a message."""
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
        "colours": [tool_colours.colour_of(name) for name in tools],
        "used": [[places.get(name, MAX_NAMES) for name in turn.tools[:MAX_TOOLS]] for turn in rest],
        "flags": [
            FAILED * turn.failed | FOUND * (index in found) | SUMMARY * turn.summary
            for index, turn in enumerate(rest, since)
        ],
        "segments": [turn.segment for turn in rest],
    }
