"""The time that work on a device takes. A GPU is asked for work and does it later: a clock that is read in between shows
how fast it was asked."""

from __future__ import annotations

import time

import torch


def now(device: torch.device) -> float:
    """Seconds, once the device has done all that it was asked for."""
    wait(device)
    return time.perf_counter()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
