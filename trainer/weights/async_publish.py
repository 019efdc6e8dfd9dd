"""Background publication: runs work beside training, one piece at a time and in order.

Training checks for completion before it relies on a piece (`check`, `wait`), which raise the piece's error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

log = logging.getLogger(__name__)

END_SECONDS = 20.0
"""Seconds that an ending process waits for unfinished work. Cutting it off there has the effect of a killed process."""


class Background:
    """Background worker owned by one thread, which alone calls its methods; the work runs in another thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self._left = False
        """The owner no longer waits for results."""

    def begin(self, work: Callable[[], None]) -> None:
        """Start `work` after the last piece. Raises that piece's error, in which case `work` does not start."""
        self.wait()
        # It keeps no process alive: one that hangs in a dead file system could not be ended otherwise.
        self._thread = Thread(target=self._run, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error of the last piece if it has failed. Does not wait."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Wait until all work is done, without limit: each request of the work has its own deadline. Raises its error,
        once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def end(self, *, patience: float = END_SECONDS) -> None:
        """Like `wait`, for at most `patience` seconds. Work that continues afterwards reports its outcome in the log."""
        if self._thread is not None:
            self._thread.join(patience)
            if self._thread.is_alive():
                self._left = True
                log.error("%s is not done after %g s and is left to itself", self._name, patience)
                return
        self.wait()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised where it is asked for
            self._error = error
            if self._left:
                log.error("%s, left to itself, ended in: %s", self._name, error)
