"""Locks on the kernel's anonymous inode, which is one for the whole machine, taken so that no sandbox can take them.

Event, timer, signal and polling descriptors of all processes share one inode, in every container, and `flock` and
`fcntl` lock inodes: an exclusive lock taken there in one sandbox would show in every other. Whoever starts sandboxes
holds shared locks there, so exclusive ones always fail and shared ones always succeed: neither tells anything.
"""

from __future__ import annotations

import fcntl
import os
import struct

_OFD_SETLK = 37


class Guard:
    """Holds the locks until it is closed. Guards of several processes do not disturb each other."""

    def __init__(self) -> None:
        """Raises OSError when somebody holds an exclusive lock already."""
        self._file = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.fcntl(self._file, _OFD_SETLK, struct.pack("hhqqixxxx", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
        except OSError:
            os.close(self._file)
            raise

    def close(self) -> None:
        os.close(self._file)
