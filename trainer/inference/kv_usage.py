"""KV-cache utilisation of an engine over the last seconds."""

from __future__ import annotations

import time
from collections import deque

WINDOW_SECONDS = 10.0


class KVCacheUsage:
    """Sliding maximum, written by one thread many times a second and read by another."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def saw(self, share: float, now: float) -> None:
        self._seen.append((now, share))
        while self._seen[0][0] < now - WINDOW_SECONDS:
            self._seen.popleft()

    def peak(self, now: float | None = None) -> float | None:
        """Largest utilisation within the window; None without a sample."""
        horizon = (time.monotonic() if now is None else now) - WINDOW_SECONDS
        return max((share for at, share in list(self._seen) if at >= horizon), default=None)
