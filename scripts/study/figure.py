"""The figure of a report: pass@1 of each policy on each suite, with its interval, as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from xml.sax.saxutils import escape

COLOURS = ("#5b7f1d", "#0f62c0", "#c2410c")
LEFT, TOP, WIDTH, HEIGHT, BAR, GAP = 56, 48, 720, 300, 44, 14


class Score(Protocol):
    """pass@1 with its interval; None where no rollout has a verdict."""

    @property
    def pass1(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def svg(table: Mapping[str, Mapping[str, Score]], titles: Mapping[str, str]) -> str:
    """`table`: suite → policy → score. The axis ends at the highest interval, at 10 % at least."""
    highest = max((score.high or 0.0 for row in table.values() for score in row.values()), default=0.0)
    top = max(0.1, -(-highest * 10 // 1) / 10)
    marks: list[str] = []
    for share in (0.0, top / 2, top):
        y = _y(share, top)
        marks.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d5d9e0"/>')
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    block = (WIDTH - LEFT) / max(1, len(table))
    for number, (suite, row) in enumerate(table.items()):
        used = len(row) * (BAR + GAP) - GAP
        begin = LEFT + number * block + (block - used) / 2
        for place, score in enumerate(row.values()):
            marks += _bar(begin + place * (BAR + GAP), score, top, COLOURS[place % len(COLOURS)])
        middle = LEFT + (number + 0.5) * block
        marks.append(
            f'<text x="{middle:.1f}" y="{TOP + HEIGHT + 22}" text-anchor="middle">{escape(titles[suite])}</text>'
        )
    for place, policy in enumerate(next(iter(table.values()), {})):
        x = LEFT + place * 120
        marks.append(f'<rect x="{x}" y="14" width="12" height="12" fill="{COLOURS[place % len(COLOURS)]}"/>')
        marks.append(f'<text x="{x + 18}" y="25">{escape(policy)}</text>')
    size = f'width="{WIDTH + 16}" height="{TOP + HEIGHT + 40}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13" fill="#333">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *marks, "</svg>"]) + "\n"


def _y(share: float, top: float) -> float:
    return TOP + HEIGHT * (1 - share / top)


def _bar(x: float, score: Score, top: float, colour: str) -> list[str]:
    if score.pass1 is None:
        return []
    y, floor, middle = _y(score.pass1, top), _y(0.0, top), x + BAR / 2
    bar = f'<rect x="{x:.1f}" y="{y:.1f}" width="{BAR}" height="{floor - y:.1f}" fill="{colour}"/>'
    if score.low is None or score.high is None:
        return [bar]
    low, high = _y(score.low, top), _y(score.high, top)
    caps = "".join(f"M{middle - 6:.1f} {y:.1f}h12" for y in (low, high))
    return [bar, f'<path d="M{middle:.1f} {low:.1f}V{high:.1f}{caps}" stroke="#333"/>']
