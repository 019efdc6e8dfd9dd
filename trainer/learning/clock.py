"""Timing of device work. A GPU runs asynchronously, so reading a clock between calls would measure only how fast work
was submitted.
"""

from __future__ import annotations

import time

import torch


def now(device: torch.device) -> float:
    """Current time in seconds, after the device has finished all submitted work."""
    wait(device)
    return time.perf_counter()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
