"""Filter chips of a transcript. They select turns from the turn facts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from composer_web.rollouts.trajectory_store import Head, TurnFacts

MAX_TOOLS = 12
"""Maximum number of tools with a chip, most used first. A policy may invent tool names."""


@dataclass(frozen=True)
class Chip:
    name: str
    """Name in the URL: `tool:NAME` or a kind."""
    title: str
    turns: int
    on: bool


@dataclass(frozen=True)
class ContextWindow:
    """One context window of the rollout. A policy that summarized its context has several."""

    index: int
    first: int
    last: int
    tokens: int | None
    summary: int | None
    """Turn in which the policy wrote the summary that starts the next window."""


def wanted(text: str) -> frozenset[str]:
    """Chip names from a comma-separated URL parameter."""
    return frozenset(filter(None, text[:1000].split(",")))


def places(head: Head, only: Collection[str], found: Collection[int]) -> Sequence[int]:
    """Indices of the turns that match any chip; all without chips. `found` has turns with findings."""
    if not only:
        return range(len(head.facts))
    asked = set(only)
    return [index for index, facts in enumerate(head.facts) if asked & _kinds(facts, index in found)]


def chips(head: Head, only: Collection[str], found: Collection[int]) -> list[Chip]:
    """Chips that match at least one turn, or that are on."""
    counts = Counter(kind for index, facts in enumerate(head.facts) for kind in _kinds(facts, index in found))
    tools = [(name, count) for name, count in counts.most_common() if name.startswith("tool:")][:MAX_TOOLS]
    titles = {"errors": "Errors", "findings": "Findings", "messages": "Messages", "summaries": "Summaries"}
    rows = [(name, title, counts[name]) for name, title in titles.items()]
    rows += [(name, name.removeprefix("tool:"), count) for name, count in tools]
    return [Chip(name, title, count, name in only) for name, title, count in rows if count or name in only]


def _kinds(facts: TurnFacts, found: bool) -> set[str]:
    kinds = {f"tool:{name}" for name in facts.tools}
    if not facts.tools:
        kinds.add("messages")
    if facts.failed:
        kinds.add("errors")
    if facts.summary:
        kinds.add("summaries")
    if found:
        kinds.add("findings")
    return kinds


def windows(head: Head) -> list[ContextWindow]:
    """Chain of context windows with the summaries that link them. Empty if there is only one window."""
    rows: dict[int, list[int]] = {}
    for index, facts in enumerate(head.facts):
        rows.setdefault(facts.segment, []).append(index)
    if len(rows) < 2:
        return []
    lengths = dict(enumerate(head.segment_tokens))
    return [
        ContextWindow(
            segment, turns[0], turns[-1], lengths.get(segment), next((i for i in turns if head.facts[i].summary), None)
        )
        for segment, turns in sorted(rows.items())
    ]
