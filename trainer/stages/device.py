"""Where a stage computes: chosen once, before anything is built on the weights."""

from __future__ import annotations

from typing import TypeVar, cast

import torch

from trainer.config import MidtrainConfig, ParallelConfig, RLConfig, SFTConfig
from trainer.defaults.hardware import cpu_has_bfloat16
from trainer.errors import StageError

AnyStage = TypeVar("AnyStage", bound=MidtrainConfig | SFTConfig | RLConfig)


def placed(config: AnyStage) -> AnyStage:
    """`config` with the number format of the device that it trains on. Raises StageError when there is no such device."""
    parallel = with_precision(config.parallel, device_of(config.parallel))
    return cast(AnyStage, config.model_copy(update={"parallel": parallel}))


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


def with_precision(config: ParallelConfig, device: torch.device) -> ParallelConfig:
    """`config` with a number format in place of `auto`: bfloat16 where the device has instructions for it."""
    if config.precision != "auto":
        return config
    half = torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else cpu_has_bfloat16()
    return config.model_copy(update={"precision": "bfloat16" if half else "float32"})
