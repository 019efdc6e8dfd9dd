"""Registry of kernels that replace a model's own layers, each for one compute format.

A kernel is a function that patches the layers it knows; its own conditions (device, threads, compiler) are checked when the
layer runs, and the library's formula is the fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from trainer.learning.kernels.cpu.rms_norm import fuse_rms_norm
from trainer.learning.kernels.cpu.swiglu import fuse_swiglu


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    precision: str
    """Compute format that it is for (`parallel.precision`)."""
    install: Callable[[nn.Module], None]
    """Patches the layers of a model in place."""


KERNELS = (
    Kernel("rms_norm", "bfloat16", fuse_rms_norm),
    Kernel("swiglu", "bfloat16", fuse_swiglu),
)


def install_kernels(model: nn.Module, *, precision: str) -> list[str]:
    """Install every kernel for this compute format; return their names."""
    chosen = [kernel for kernel in KERNELS if kernel.precision == precision]
    for kernel in chosen:
        kernel.install(model)
    return [kernel.name for kernel in chosen]
