"""What a train worker tells the trainer process that it started: lines on its standard input.

`step N` and `look` wake a trainer that waits; what there is to do stands in Postgres. `stop` asks it to stop after the
current step. The end of the input means that the worker died: the process ends at once, so that the GPU is free for
whoever takes the run over.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import IO

log = logging.getLogger(__name__)

STOP = "stop"
LOOK = "look"
ORPHANED = 75
"""Exit status of a trainer process whose worker died."""


def _leave() -> None:
    os._exit(ORPHANED)


class Wakes:
    """The waiting side. Without `listen` it is woken by `wake` alone, as tests do."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._stop = threading.Event()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Ask the trainer to stop after the current step."""
        self._stop.set()
        self._woken.set()

    def stopping(self) -> bool:
        return self._stop.is_set()

    def clear(self) -> None:
        """Before looking at the rows: what comes later wakes again."""
        self._woken.clear()

    def wait(self, seconds: float) -> bool:
        """Whether something came within so many seconds since the last `clear`."""
        return self._woken.wait(max(0.0, seconds))

    def listen(self, stream: IO[bytes], *, gone: Callable[[], None] = _leave) -> None:
        """Obey the lines of `stream` in a thread of its own; `gone` is called at its end."""
        threading.Thread(target=self._read, args=(stream, gone), name="wakes", daemon=True).start()

    def _read(self, stream: IO[bytes], gone: Callable[[], None]) -> None:
        for line in stream:
            if line.decode().strip() == STOP:
                self.stop()
            else:
                self.wake()
        log.error("the train worker is gone; its trainer ends")
        gone()
