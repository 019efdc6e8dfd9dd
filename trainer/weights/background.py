"""Work beside training, one piece at a time and in order: how the trainer's step hands a version over and goes on.

Training asks for it again before it relies on it (`check`, `wait`), and is then told what it ended in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

log = logging.getLogger(__name__)

END_SECONDS = 20.0
"""How long a process that ends waits for work that is not done. What is cut off there is as if the process was killed."""


class Background:
    """Owned by one thread, which alone calls its methods; the work runs in another."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self._left = False
        """Nobody asks any more."""

    def begin(self, work: Callable[[], None]) -> None:
        """Starts `work` once the last piece is done. Raises what that ended in; `work` is not begun then."""
        self.wait()
        # It keeps no process alive: one that hangs in a dead file system could not be ended otherwise.
        self._thread = Thread(target=self._run, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises what the last piece ended in, if it has; waits for nothing."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Until all is done, however long: each request of the work has a deadline of its own. Raises what it ended in, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def end(self, *, patience: float = END_SECONDS) -> None:
        """As `wait`, for `patience` seconds at most: then it is left to itself, and the log has what becomes of it."""
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
