"""Progress on standard error: the step, what it does, and when the whole study will be done."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

PRIOR_SECONDS = 300.0
"""Weight of the expectation against what was measured: short first steps say little about long ones."""


class Progress:
    """`expected` holds the seconds of each step on two cores; the steps that have ended correct them."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        self.expected = dict(expected)
        self.steps: Sequence[str] = tuple(expected)
        self.taken: dict[str, float] = {}
        self._began = time.monotonic()
        self._step, self._step_began, self._told = "", self._began, ""

    def begin(self, step: str) -> None:
        self._step, self._step_began, self._told = step, time.monotonic(), ""
        self.say("")

    def end(self, step: str, seconds: float) -> None:
        self.taken[step] = seconds

    def say(self, text: str) -> None:
        """One line, unless it is the same as the last."""
        if text == self._told and text:
            return
        self._told = text
        number = self.steps.index(self._step) + 1 if self._step in self.steps else 0
        head = f"[{clock(time.monotonic() - self._began)}] {number}/{len(self.steps)} {self._step}"
        left = f" · {clock(self.eta())} left" if self._step else ""
        print(f"{head}{': ' if text else ''}{text}{left}", file=sys.stderr, flush=True)

    def eta(self) -> float:
        """Seconds until the study ends: the expected ones of what is left, times how wrong they were so far."""
        expected = sum(self.expected.get(step, 0.0) for step in self.taken)
        scale = (PRIOR_SECONDS + sum(self.taken.values())) / (PRIOR_SECONDS + expected)
        left = sum(self.expected[step] for step in self.steps if step not in self.taken and step != self._step)
        now = time.monotonic() - self._step_began
        return scale * left + max(0.0, scale * self.expected.get(self._step, 0.0) - now)


def clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
