"""Memory that a step freed goes back to the system.

The C library keeps freed blocks for later ones and, between tensors of ever other sizes, finds fewer and fewer that fit: the
resident size grows from step to step though nothing more is in use. Engine and sandboxes of the same machine need it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """Release the free pages of the heap; does nothing where the C library has no such call (it is glibc's)."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
