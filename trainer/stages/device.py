"""Where a stage computes: chosen once, before anything is built on the weights."""

from __future__ import annotations

import torch

from trainer.config import ParallelConfig
from trainer.errors import StageError


def device_of(config: ParallelConfig, *, local: int = 0) -> torch.device:
    """The device of the process that is number `local` on this machine. Raises StageError when there is none for it."""
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if local >= found:
        wanted = (
            f"parallel.device=cuda with parallel.world_size={config.world_size}"
            if not found
            else f"parallel.world_size={config.world_size}"
        )
        raise StageError(
            f"{wanted} needs a GPU for each rank, this machine has {found} that torch can use; "
            "lower ranks, set device to cpu, or install a CUDA build of torch"
        )
    return torch.device("cuda", local)
