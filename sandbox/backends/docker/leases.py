"""Liveness: a lock file held by each process, and labels that tie containers and volumes to it."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from sandbox.backends.base import SandboxUnavailable

FOLDER_LABEL = "opencomposer.leases"
LEASE_LABEL = "opencomposer.lease"
ID_FILE = "id"


def folder_id(folder: Path) -> str:
    """What names this folder of leases in labels; the folder is made when there is none. Raises SandboxUnavailable.

    It is not the path: two workers in containers of their own may both have a `/tmp`.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise SandboxUnavailable(
                f"{folder} belongs to somebody else or others may write to it: remove it, or name another folder in "
                "OPENCOMPOSER_DOCKER_LEASES"
            )
        draft = folder / f"{ID_FILE}.{uuid.uuid4().hex}"
        draft.write_text(uuid.uuid4().hex)
        try:
            os.link(draft, folder / ID_FILE)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return (folder / ID_FILE).read_text()
    except OSError as error:
        raise SandboxUnavailable(
            f"cannot keep leases in {folder} ({error.strerror}): name another folder in OPENCOMPOSER_DOCKER_LEASES"
        ) from None


class Lease:
    """Held from construction until `close` or the end of this process."""

    def __init__(self, folder: Path) -> None:
        """Raises SandboxUnavailable."""
        identity = folder_id(folder)
        self.owner = os.getpid()
        while True:
            self.name = uuid.uuid4().hex
            self._path = folder / self.name
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file).st_nlink:  # no sweeper took it for dead before it was locked
                break
            os.close(self._file)
        self.labels = {FOLDER_LABEL: identity, LEASE_LABEL: self.name}
        os.register_at_fork(after_in_child=self._forget)

    def close(self) -> None:
        if self._file >= 0 and self.owner == os.getpid():
            self._path.unlink(missing_ok=True)
            self._forget()

    def _forget(self) -> None:
        """A forked child does not hold its parent's lease."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def sweep(folder: Path, used: set[str], remove: Callable[[str], None]) -> None:
    """Call `remove` with each lease, of those `used` in labels and those in the folder, whose process is gone."""
    names = {path.name for path in folder.iterdir() if len(path.name) == 32} | used
    for name in sorted(names):
        path = folder / name
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # closed in order; something of it was left nevertheless
            remove(name)
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            remove(name)
            path.unlink(missing_ok=True)
        finally:
            os.close(file)
