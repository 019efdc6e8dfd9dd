"""Waiting on conditions, and pages as they are read."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable


def as_read(page: bytes) -> str:
    """A page's HTML however its template is laid out: one blank for any white space, none between tags."""
    return re.sub(r"> <", "><", re.sub(r"\s+", " ", page.decode()))


def eventually(condition: Callable[[], bool], *, seconds: float = 10.0, what: str = "the condition") -> None:
    """Return once `condition` holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true within {seconds} s"
        pause.wait(0.02)
