"""Locks on files: held by an open descriptor, so they end with the process, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from sandbox.backends.base import SnapshotError

WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.005


class Lock:
    """A held lock on the file at `path`. Whoever holds it alone may `remove` the file with it."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self._fd = path, fd

    def remove(self) -> None:
        """Remove the file and release. Those who wait for it notice, and take a new one."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def shared(path: Path) -> Lock:
    """A lock that others may share. Raises SnapshotError when somebody holds it alone for a minute."""
    end = time.monotonic() + WAIT_SECONDS
    while (lock := _take(path, fcntl.LOCK_SH)) is None:
        if time.monotonic() > end:
            raise SnapshotError(f"{path} has been locked by another process for {WAIT_SECONDS:.0f} s")
        time.sleep(PAUSE_SECONDS)
    return lock


def alone(path: Path) -> Lock | None:
    """The lock for us alone, or None while somebody else holds it."""
    return _take(path, fcntl.LOCK_EX)


def _take(path: Path, kind: int) -> Lock | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock = Lock(path, fd)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):  # else its owner removed it between open and lock
            return lock
    lock.close()
    return None
