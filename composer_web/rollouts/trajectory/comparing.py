"""Side-by-side comparison of a prompt's rollouts: outcomes, and the turn where they diverge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from composer_web.rollouts.models import Rollout
from composer_web.rollouts.trajectory import tool_colours
from composer_web.rollouts.trajectory.trajectory_store import WINDOW, Reading
from composer_web.rollouts.trajectory.transcript import as_text
from trainer.types import Turn

MAX_ROLLOUTS = 32
MAX_ROWS = 200


@dataclass(frozen=True)
class Cell:
    """One rollout's actions in one turn. Rollouts with identical actions so far share the letter in `branch`."""

    brief: str
    branch: str
    failed: bool
    colour: int
    """Class `tool-N` of its first tool; 0 for a message."""
    parts: bool
    """Whether the rollout diverges here from one with which it was identical so far."""


@dataclass(frozen=True)
class Shown:
    """A cell as the page shows it: what its siblings have too, shortened, and what sets it apart."""

    cell: Cell
    common: str
    own: str


@dataclass(frozen=True)
class Block:
    """Turns `first` to `last`: one turn with its cells, or consecutive ones that all rollouts did alike, folded."""

    first: int
    last: int
    cells: list[Shown | None]
    briefs: tuple[str, ...] = ()

    @property
    def folded(self) -> bool:
        return not self.cells


@dataclass(frozen=True)
class Ways:
    rows: list[list[Cell | None]]
    """Turn → cell of each rollout; None after its end."""
    parting: int | None
    """First turn in which the rollouts differ. None if they never do."""
    cut: int
    """Turns of the longest rollout that are not shown."""

    def blocks(self) -> list[Block]:
        """Rows for the page: those in which all rollouts did the same are folded."""
        found: list[Block] = []
        for index, row in enumerate(self.rows):
            cells = [cell for cell in row if cell]
            alike = len(cells) > 1 and len(cells) == len(self.rows[0]) and len({cell.branch for cell in cells}) == 1
            if alike and found and found[-1].folded:
                found[-1] = Block(found[-1].first, index, [], (*found[-1].briefs, cells[0].brief))
            elif alike:
                found.append(Block(index, index, [], (cells[0].brief,)))
            else:
                found.append(Block(index, index, _set_apart(row)))
        return found


def ways(readings: Sequence[Reading | None]) -> Ways:
    """Turn by turn: who did the same as whom. Two turns are the same when their calls (or, without calls, their text) are.

    A window of each is in memory at a time, and no tokens. Raises ArtifactError.
    """
    lengths = sorted(r.total for r in readings if r)
    longest = lengths[-2] if len(lengths) > 1 else sum(lengths)  # what one alone does has nothing beside it
    rows: list[list[Cell | None]] = []
    before: list[object] = [() if r else None for r in readings]
    parting = None
    windows: list[Sequence[Turn]] = []
    for index in range(min(longest, MAX_ROWS)):
        if index % WINDOW == 0:
            windows = [r.turns(range(index, min(index + WINDOW, r.total))) if r else () for r in readings]
        turns = [turns[index % WINDOW] if index % WINDOW < len(turns) else None for turns in windows]
        now: list[object] = [
            (path, _what(turn)) if turn is not None else None for path, turn in zip(before, turns, strict=True)
        ]
        letters = {path: _letter(i) for i, path in enumerate(dict.fromkeys(p for p in now if p is not None))}
        row: list[Cell | None] = []
        for place, (path, turn) in enumerate(zip(now, turns, strict=True)):
            if turn is None or path is None:
                row.append(None)
                continue
            company = [i for i, other in enumerate(before) if other == before[place] and i != place]
            parts = any(now[i] != path for i in company)
            failed = any(r.error for r in turn.results)
            colour = tool_colours.colour_of(turn.calls[0].name) if turn.calls else 0
            row.append(Cell(_brief(turn), letters[path], failed, colour, parts))
        if parting is None and any(cell and cell.parts for cell in row):
            parting = index
        rows.append(row)
        # A tuple of tuples would be compared from its start each turn: a number a way is enough.
        numbers = {path: number for number, path in enumerate(letters)}
        before = [(index, numbers[path]) if path is not None else None for path in now]
    return Ways(rows, parting, max([*lengths, 0]) - len(rows))


def _what(turn: Turn) -> str:
    return json.dumps([[c.name, c.arguments] for c in turn.calls], sort_keys=True) if turn.calls else turn.text


MAX_BRIEF = 240
"""Characters of a turn in the table. The trajectory has all."""


def _brief(turn: Turn) -> str:
    calls = [f"{c.name} {' '.join(as_text(v) for v in c.arguments.values())}" for c in turn.calls]
    text = (" · ".join(calls) or turn.text).replace("\n", "⏎")
    return text if len(text) <= MAX_BRIEF else f"{text[: MAX_BRIEF - 1]}…"


MIN_COMMON = 12
"""Characters that siblings must share before they are shortened."""


def _set_apart(row: Sequence[Cell | None]) -> list[Shown | None]:
    """Split what cells do into what all have in common, to its last word, and the rest."""
    briefs = {cell.brief for cell in row if cell}
    low, high = min(briefs, default=""), max(briefs, default="")
    alike = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), 0)
    common = low[: low.rfind(" ", 0, alike) + 1]
    if len(common) < MIN_COMMON:
        return [Shown(cell, "", cell.brief) if cell else None for cell in row]
    short = common.split(" ", 1)[0] + " … "
    return [Shown(cell, short, cell.brief[len(common) :]) if cell else None for cell in row]


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def part_names(rollouts: Sequence[Rollout]) -> list[str]:
    """Names of the reward components of all rollouts, in order of first appearance."""
    return list(dict.fromkeys(part["name"] for rollout in rollouts for part in rollout.reward_parts))


def part_value(rollout: Rollout, name: str) -> float | None:
    """Contribution of one component to a rollout's reward."""
    for part in rollout.reward_parts:
        if part["name"] == name:
            return float(part["value"]) * float(part.get("weight", 1.0))
    return None
