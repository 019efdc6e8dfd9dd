"""Where an engine computes. On the CPU its inner loops are compiled; anywhere else torch's operators do the same."""

from __future__ import annotations

import torch

CPU = torch.device("cpu")
DEVICE = "OPENCOMPOSER_ENGINE_DEVICE"


def place(name: str) -> torch.device:
    """The device that `cpu`, `cuda` or `cuda:N` means on this machine. Raises ValueError, which names the setting."""
    kind, _, number = name.partition(":")
    if kind not in {"cpu", "cuda"} or (number and (kind == "cpu" or not number.isdecimal())):
        raise ValueError(f"the engine's device is {name!r}; it is cpu, cuda or cuda:N ({DEVICE})")
    if kind == "cpu":
        return CPU
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= found:
        raise ValueError(
            f"the engine's device is {name!r}, and torch can use {found} GPUs of this machine; set "
            f"{DEVICE}=cpu, name another one, or install a CUDA build of torch"
        )
    return torch.device("cuda", int(number or 0))
