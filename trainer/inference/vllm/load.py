"""Load of the servers over the last seconds and since the start, measured from the requests that passed through."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

WINDOW_SECONDS = 10.0


@dataclass(slots=True)
class Count:
    """Tokens of one answer; 0 until known."""

    tokens: int = 0


@dataclass(slots=True)
class Meter:
    running: int = 0
    sampled_tokens: int = 0
    _ended: float = 0.0
    _since: float = 0.0
    _busy: deque[tuple[float, float]] = field(default_factory=deque)
    _tokens: deque[tuple[float, int]] = field(default_factory=deque)

    @contextmanager
    def request(self) -> Iterator[Count]:
        """Measure one request; store its number of tokens in the yielded object."""
        if self.running == 0:
            self._since = time.monotonic()
        self.running += 1
        count = Count()
        try:
            yield count
        finally:
            now = time.monotonic()
            self.running -= 1
            if self.running == 0:
                self._busy.append((self._since, now))
                self._ended += now - self._since
            self._tokens.append((now, count.tokens))
            self.sampled_tokens += count.tokens

    @property
    def busy_seconds(self) -> float:
        """Seconds with a request in progress."""
        return self._ended + (time.monotonic() - self._since if self.running else 0.0)

    def load(self) -> tuple[float, float]:
        """Share of the window with a request in progress, and tokens per second (counted when an answer is complete)."""
        now = time.monotonic()
        begin = now - WINDOW_SECONDS
        while self._busy and self._busy[0][1] < begin:
            self._busy.popleft()
        while self._tokens and self._tokens[0][0] < begin:
            self._tokens.popleft()
        spans = [*self._busy, *([(self._since, now)] if self.running else [])]
        busy = sum(end - max(start, begin) for start, end in spans)
        return min(1.0, busy / WINDOW_SECONDS), sum(n for _, n in self._tokens) / WINDOW_SECONDS
