"""Questions to `nvidia-smi`, which comes with the driver. Without it there are no GPUs. Not tested on a machine with one."""

from __future__ import annotations

import logging
import shutil
import subprocess

from trainer.usage.measured import GpuUsage

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Timeout of the driver in seconds."""
MIB = 1 << 20


def query(*fields: str, seconds: float = PATIENCE) -> list[list[str]]:
    """The fields of each GPU, as text. Empty where no driver answers."""
    if shutil.which("nvidia-smi") is None:
        return []
    asked = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("nvidia-smi does not answer: %s", error)
        return []
    if said.returncode:
        log.warning("nvidia-smi: %s", (said.stderr or said.stdout).strip())
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in said.stdout.splitlines()]
    return [row for row in rows if len(row) == len(fields)]


def gpus() -> list[GpuUsage]:
    found = []
    for index, name, busy, memory, total, power in query(
        "index", "name", "utilization.gpu", "memory.used", "memory.total", "power.draw"
    ):
        used, room, share = _number(memory), _number(total), _number(busy)
        if used is None or room is None:
            continue  # a GPU split by MIG reports its parts only
        found.append(
            GpuUsage(
                index=int(index),
                name=name,
                utilisation=None if share is None else share / 100,
                memory=int(used * MIB),
                memory_total=int(room * MIB),
                power=_number(power),
            )
        )
    return found


def _number(text: str) -> float | None:
    """None for what the driver has no number for: `[N/A]`, `[Not Supported]`."""
    try:
        return float(text)
    except ValueError:
        return None
