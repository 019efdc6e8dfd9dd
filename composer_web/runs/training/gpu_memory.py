"""Memory and number formats available to a trainer: of a GPU, or else of the machine. The worker reports them in its
heartbeat."""

from __future__ import annotations

import os

from trainer.defaults.hardware import BF16_COMPUTE_CAPABILITY, cpu_has_bfloat16
from trainer.usage import nvidia

PATIENCE = 10.0
"""Timeout of the driver in seconds."""


def device_room() -> dict[str, int | bool]:
    """`gpu_bytes` of the smallest GPU, or `machine_bytes`; and whether it has `bfloat16` instructions."""
    if gpus := _gpus():
        return {
            "gpu_bytes": min(size for size, _ in gpus),
            "bfloat16": all(capability >= BF16_COMPUTE_CAPABILITY for _, capability in gpus),
        }
    return {
        "machine_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "bfloat16": cpu_has_bfloat16(),
    }


def _gpus() -> list[tuple[int, float]]:
    """(bytes, compute capability) of each GPU."""
    rows = nvidia.query("memory.total", "compute_cap", seconds=PATIENCE)
    return [(int(memory) << 20, float(capability)) for memory, capability in rows]
