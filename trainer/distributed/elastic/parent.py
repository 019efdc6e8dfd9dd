"""Ends this process when its parent ends, for any reason, and shows until then that it is there."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
RANKS_LOCK = "OPENCOMPOSER_RANKS_LOCK"
"""Variable that names the lock file of the ranks that a trainer started on its own machine."""


def end_with_parent() -> None:
    """Install the parent watch. Call it first; exits at once when the parent is already gone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == 1:  # it died before we asked for the signal
        sys.exit(1)


def hold_ranks_lock() -> None:
    """Hold the lock of the ranks until this process ends, with the other ranks. Does nothing where none is named.

    Whoever gets the lock for itself knows that no rank is left: a rank may outlive its trainer for the seconds in which a
    GPU's driver or a write to disk keeps it.
    """
    if path := os.environ.get(RANKS_LOCK):
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), fcntl.LOCK_SH)  # open until the process ends
