"""How long a call stood still because the machine had no processor for it: time that is not the call's own.

A program that sleeps, stops itself or waits for a file is not starved, and neither is one whose processes wait for
each other's share: what they ran is taken off what they waited, as the kernel tells both for each thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

LOOK_SECONDS = 0.5
MAX_THREADS = 1000
AGENT = 1


class Starvation:
    """The starved time of one call, as far as it was looked at. `look` is to be called every LOOK_SECONDS or so."""

    def __init__(self, now: float) -> None:
        self.seconds = 0.0
        self._at = now
        self._seen = _threads([AGENT]) or {}

    def look(self, pids: Iterable[int], now: float) -> None:
        """Add what the call, which is made of `pids`, and the agent for it waited for since the last look."""
        passed, self._at = now - self._at, now
        seen = _threads([AGENT, *pids])
        if seen is None:  # this kernel does not tell (gVisor): the call is given the benefit
            self.seconds += passed
            return
        ran = waited = 0
        for name, (on, off) in seen.items():
            before_on, before_off = self._seen.get(name, (0, 0))
            ran += max(0, on - before_on)
            waited += max(0, off - before_off)
        self._seen = seen
        self.seconds += max(0.0, min(passed, waited / 1e9, passed - ran / 1e9))


def _threads(pids: Iterable[int]) -> dict[str, tuple[int, int]] | None:
    """Nanoseconds on a processor and waiting for one, by thread; None when the kernel keeps no such count."""
    if not os.path.exists("/proc/self/schedstat"):
        return None
    found: dict[str, tuple[int, int]] = {}
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                    fields = file.read().split()
                found[thread] = int(fields[0]), int(fields[1])
        except OSError:
            continue
        if len(found) > MAX_THREADS:
            break
    return found
