"""Ends this process when its parent ends, for any reason."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Install the parent watch. Call it first; exits at once when the parent is already gone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == 1:  # it died before we asked for the signal
        sys.exit(1)
