"""Memory available to a trainer: of a GPU, or else of the machine. The worker reports it in its heartbeat."""

from __future__ import annotations

import os
import shutil
import subprocess

PATIENCE = 10.0
"""Timeout of the driver in seconds."""


def device_room() -> dict[str, int]:
    """`gpu_bytes` of the smallest GPU, or `machine_bytes`."""
    gpus = _gpus()
    if gpus:
        return {"gpu_bytes": min(gpus)}
    return {"machine_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def _gpus() -> list[int]:
    if shutil.which("nvidia-smi") is None:
        return []
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if said.returncode:
        return []
    return [int(line) << 20 for line in said.stdout.split() if line.isdigit()]
