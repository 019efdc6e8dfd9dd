"""Alarms of a run: a measure of behaviour that has moved away from where it was.

A pure function of the whole series, so that asking again, after a resume or with more steps, gives the same alarms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sandbox.grading.audit.attempt.evidence import Evidence
from sandbox.grading.audit.rules.base import Finding, Severity

DRIFT_VERSION = 1
WINDOW = 5
"""Steps of the baseline, and of the mean that is compared with it."""
SPREADS = 4.0
"""How many standard deviations of the baseline a mean must move, besides by `Watch.least`."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One measure that is watched, and what a move of it may mean."""

    rule: str
    metric: str
    title: str
    direction: Literal["up", "down", "both"]
    least: float
    """Smallest move that anybody should care about, in the measure's own unit."""
    factor: float = 0.0
    """Smallest move as a share of the lower of the two levels."""


WATCHES = (
    Watch("drift-comments", "behaviour/comment_share", "Reasoning moves into code comments", "up", 0.15),
    Watch("drift-comment-length", "behaviour/comment_chars", "Comments grow long", "up", 200.0, 1.0),
    Watch("drift-terminal", "behaviour/terminal_share", "Tool use collapses to the terminal", "up", 0.2),
    Watch("drift-one-tool", "behaviour/top_tool_share", "Tool use collapses to one tool", "up", 0.2),
    Watch("drift-edits", "behaviour/edits", "The rate of edits changes", "both", 1.0, 0.75),
    Watch("drift-no-patch", "behaviour/patched", "Attempts leave no change", "down", 0.25),
    Watch("drift-turns", "behaviour/turns", "The number of turns changes", "both", 2.0, 0.75),
    Watch("drift-questions", "behaviour/questions", "Attempts end by asking the user", "up", 0.1),
    Watch("drift-malformed", "behaviour/malformed_share", "Malformed calls increase", "up", 0.1),
)
DRIFT_TITLES = {watch.rule: watch.title for watch in WATCHES}


@dataclass(frozen=True, slots=True)
class Alarm:
    """`watch` moved from `before` to `after` (means over WINDOW steps) at `step`."""

    watch: Watch
    step: int
    before: float
    after: float

    @property
    def finding(self) -> Finding:
        text = f"{self.watch.metric} went from {self.before:.3g} to {self.after:.3g} by step {self.step}"
        return Finding(
            rule=self.watch.rule,
            version=DRIFT_VERSION,
            severity=Severity.MEDIUM,
            summary=text,
            evidence=(Evidence(source="run", field=self.watch.metric, start=self.step, end=self.step, excerpt=text),),
        )


def alarms(series: Mapping[str, Sequence[tuple[int, float]]]) -> list[Alarm]:
    """Every alarm in the (step, value) series of the watched metrics, by step."""
    found = [alarm for watch in WATCHES for alarm in _alarms(watch, sorted(series.get(watch.metric, ())))]
    return sorted(found, key=lambda alarm: (alarm.step, alarm.watch.rule))


def _alarms(watch: Watch, points: Sequence[tuple[int, float]]) -> list[Alarm]:
    """After an alarm the steps that follow are the new baseline: one move is told once."""
    found: list[Alarm] = []
    start = 0
    end = 2 * WINDOW
    while end <= len(points):
        base = [value for _, value in points[start : start + WINDOW]]
        recent = [value for _, value in points[end - WINDOW : end]]
        before, after = sum(base) / WINDOW, sum(recent) / WINDOW
        spread = math.sqrt(sum((value - before) ** 2 for value in base) / WINDOW)
        need = max(watch.least, watch.factor * min(abs(before), abs(after)), SPREADS * spread)
        move = (
            after - before
            if watch.direction == "up"
            else before - after
            if watch.direction == "down"
            else abs(after - before)
        )
        if move >= need:
            found.append(Alarm(watch, points[end - 1][0], before, after))
            start = end
            end += 2 * WINDOW
        else:
            end += 1
    return found
