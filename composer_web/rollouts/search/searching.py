"""Search inside one trajectory: all text on its page, by turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from composer_web.rollouts.trajectory.trajectory_store import Reading
from composer_web.rollouts.trajectory.transcript import as_text

MAX_HITS = 200
AROUND = 60
"""Characters of context on each side of a hit."""


@dataclass(frozen=True)
class Hit:
    """One occurrence. `turn` is None outside the turns; then `where` names a section of the page (`patch`,
    `report`)."""

    turn: int | None
    where: str
    before: str
    match: str
    after: str

    @property
    def place(self) -> str:
        return f"t={self.turn}" if self.turn is not None else self.where

    @property
    def title(self) -> str:
        return f"turn {self.turn + 1}, {self.where}" if self.turn is not None else self.where


@dataclass(frozen=True)
class SearchResult:
    hits: list[Hit]
    total: int
    turns: int
    """Number of turns with a hit."""


def search(read: Reading, text: str) -> SearchResult:
    """Case-insensitive occurrences of `text` in page order, at most MAX_HITS."""
    hits: list[Hit] = []
    total, turns = 0, set()
    wanted = text.casefold()
    if not wanted:
        return SearchResult([], 0, 0)
    for turn, where, body in _texts(read):
        # Case folding may change lengths (ß → ss); then positions are of the folded text, which is what is shown.
        folded = body.casefold()
        shown = body if len(folded) == len(body) else folded
        start = folded.find(wanted)
        while start >= 0:
            total += 1
            if turn is not None:
                turns.add(turn)
            end = start + len(wanted)
            if len(hits) < MAX_HITS:
                before, after = shown[max(0, start - AROUND) : start], shown[end : end + AROUND]
                hits.append(Hit(turn, where, _line(before), _line(shown[start:end]), _line(after)))
            start = folded.find(wanted, end)
    return SearchResult(hits, total, len(turns))


def first(read: Reading, text: str) -> Hit | None:
    """The first occurrence in what the policy did, else in the prompt, patch or report. Reads no further than it."""
    wanted = text.casefold()
    if not wanted:
        return None
    for turns in (True, False):
        for turn, where, body in _texts(read):
            if (turn is not None) != turns:
                continue
            folded = body.casefold()
            shown = body if len(folded) == len(body) else folded
            start = folded.find(wanted)
            if start >= 0:
                end = start + len(wanted)
                before, after = shown[max(0, start - AROUND) : start], shown[end : end + AROUND]
                return Hit(turn, where, _line(before), _line(shown[start:end]), _line(after))
    return None


def _line(text: str) -> str:
    return text.replace("\n", "⏎")


def _texts(read: Reading) -> Iterator[tuple[int | None, str, str]]:
    """(turn, where, text) in page order."""
    for message in read.head.messages:
        yield None, "opening", as_text(message.get("content", ""))
    for turn in read.each():
        yield turn.index, "text", turn.text
        for call in turn.calls:
            yield turn.index, f"{call.name} arguments", "\n".join(as_text(value) for value in call.arguments.values())
        for result in turn.results:
            yield turn.index, "output", result.output
    rest = read.head.trajectory
    if rest is not None:
        yield None, "patch", rest.patch
        for case in rest.report.cases:
            yield None, "report", f"{case.id} {case.message}"
