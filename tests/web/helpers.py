"""Waiting on conditions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], *, seconds: float = 10.0, what: str = "the condition") -> None:
    """Return once `condition` holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true within {seconds} s"
        pause.wait(0.02)
