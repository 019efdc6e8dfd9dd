"""Number formats that a processor or a GPU computes in, without torch."""

from __future__ import annotations

import platform
from pathlib import Path

CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of /proc/cpuinfo for bfloat16 instructions; the last is ARM's."""
BF16_COMPUTE_CAPABILITY = 8.0
"""First CUDA compute capability with bfloat16 (Ampere)."""


def cpu_has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether every core has bfloat16 instructions. Without them each operation is emulated, many times slower."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine() == "arm64"
    flags = [set(line.partition(":")[2].split()) for line in lines if line.lower().startswith(("flags", "features"))]
    return bool(flags) and all(one & CPU_FLAGS for one in flags)
