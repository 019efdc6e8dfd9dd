"""Kernel user ids for the sandboxes of a root host: one for each sandbox, leased across all hosts of the machine.

The kernel counts descriptors in flight, pipe pages, watches and queued signals by user, so sandboxes must not share one.
A lease is a lock on one byte of a file that every host process of the machine opens. It belongs to the open file, which
the zygote and the sandbox's supervisor hold: the kernel ends it with the last of them, so a crash leaves nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.backends.namespaces.kernel.identity import ROOT_CANDIDATES, NoIdentity, id_map

RANGES = (range(1_900_000_000, 1_900_065_536), range(ROOT_CANDIDATES[-1] + 1, 65_534))
"""Ids that may be lent, best first: where no account, container or subordinate range is usually found."""
DOCKER_IDS = range(1_900_065_536, 1_900_131_072)
"""Ids for containers, which the engine keeps apart (`docker/users.py`)."""
FOLDERS = ("/run", "/dev/shm", "/tmp")
NAME = "opencomposer-sandbox-uids"
_OFD_GETLK, _OFD_SETLK = 36, 37
_RECORD = "hhqqixxxx"


@dataclass(frozen=True)
class Lease:
    """A user id of one's own; `file` is the descriptor whose end ends it."""

    uid: int
    file: int

    def close(self) -> None:
        os.close(self.file)


class Pool:
    """The ids that this process may lend. Ids of other containers of a machine are avoided by chance alone."""

    def __init__(self, ids: Sequence[int] | None = None, folders: tuple[str, ...] = FOLDERS) -> None:
        """Raises NoIdentity when no id is mapped here, or no folder can hold the file of leases."""
        self._ids = mapped_ids() if ids is None else ids
        if not self._ids:
            raise NoIdentity("no user id besides our own is mapped in /proc/self/uid_map")
        self._path = _lease_file(folders)
        self._next = random.randrange(len(self._ids))

    def take(self) -> Lease:
        """An id that nobody else on this machine holds. Raises NoIdentity when all are lent."""
        file = _open(self._path)
        for tried in range(len(self._ids)):
            index = (self._next + tried) % len(self._ids)
            try:
                fcntl.fcntl(file, _OFD_SETLK, _record(fcntl.F_WRLCK, self._ids[index]))
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    os.close(file)
                    raise
                continue
            self._next = index + 1
            return Lease(self._ids[index], file)
        os.close(file)
        raise NoIdentity(
            f"all {len(self._ids)} user ids for sandboxes ({self._ids[0]}–{self._ids[-1]}) are in use on this machine: "
            "run fewer sandboxes at once, or map more ids into this container (see /proc/self/uid_map)"
        )

    def lent(self, uid: int) -> bool:
        """Whether somebody on this machine holds `uid`."""
        file = _open(self._path)
        try:
            found = fcntl.fcntl(file, _OFD_GETLK, _record(fcntl.F_WRLCK, uid))
            return bool(struct.unpack(_RECORD, found)[0] != fcntl.F_UNLCK)
        finally:
            os.close(file)


def mapped_ids() -> range:
    """The best range of `RANGES` that is mapped as users and as groups here, as far as it is; empty when none is."""
    for wanted in RANGES:
        ids = wanted
        for kind in ("uid", "gid"):
            extents = [range(max(first, ids.start), min(end, ids.stop)) for first, end in id_map(kind)]
            ids = max(extents, key=len, default=range(0))
        if ids:
            return ids
    return range(0)


def _record(kind: int, byte: int) -> bytes:
    return struct.pack(_RECORD, kind, os.SEEK_SET, byte, 1, 0)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _lease_file(folders: tuple[str, ...]) -> str:
    for folder in folders:
        path = f"{folder}/{NAME}"
        try:
            file = _open(path)
        except OSError:
            continue
        ours = os.fstat(file).st_uid == os.geteuid()
        os.close(file)
        if ours:
            return path
    raise NoIdentity(f"no folder of {', '.join(folders)} can be written, so user ids cannot be leased")
