"""Returns freed memory to the system after a step, and measures peak memory.

The C library keeps freed blocks for reuse, and tensors of ever-changing sizes fit fewer and fewer of them. The resident
size then grows from step to step without more memory in use. Engine and sandboxes on the same machine need that memory.
"""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch


def give_back() -> None:
    """Release free pages of the heap; does nothing where the C library lacks the call (glibc has it)."""
    trim = find_malloc_trim()
    if trim is not None:
        trim(0)


@cache
def find_malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def take_peak(device: torch.device) -> int:
    """Peak bytes since the last call: allocated on a GPU, or resident in this process when it computes on the CPU."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # no Linux: the most since the process began
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    with suppress(OSError):  # a kernel that refuses leaves the most since the process began
        Path("/proc/self/clear_refs").write_text("5")
    return peak
