"""Fused RMSNorm for bf16 passes: one step each way, with bf16 output.

The library computes this norm as six operators and returns float32, which each following projection (three for
attention, two for the gated layer) casts for itself and keeps. Here the sums are still float32, the output is cast
once, and the backward pass keeps only the input and one number per token. Outside of autocast the library's own formula
runs, bit for bit.

    y = x·s·w,   s = 1/√(mean x² + ε),   ∂x = s·(g·w − x·s·mean(g·w·x·s)),   ∂w = Σ g·x·s

With few threads both steps are compiled loops, where there is a compiler; torch's operators pass over memory a dozen
times.

Shape suffixes: D width of the normalised dimension.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.learning.kernels.cpu.bf16 import loops_for, rows

ROWS = 512
"""Rows whose weight gradients are summed at once."""


def fuse_rms_norm(model: nn.Module) -> None:
    """Make the RMS norms of `model` return bf16 wherever autocast is on."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = partial(_forward, module, module.forward)


def _forward(module: Any, library: Any, x: Tensor) -> Tensor:
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return cast(Tensor, library(x))
    return cast(Tensor, _Norm.apply(x, module.weight, module.variance_epsilon, torch.get_autocast_dtype(kind)))


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_D: Tensor, eps: float, half: torch.dtype) -> Tensor:
        if loops := _loops(x, weight_D, half):
            out, scale = torch.empty_like(x, dtype=half), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)
            loops.norm_forward(rows(x), rows(weight_D)[0], np.float32(eps), rows(out), scale.numpy().reshape(-1))
        else:
            whole = x.float()
            length = torch.linalg.vector_norm(whole, dim=-1, keepdim=True)
            scale = length.square_().div_(len(weight_D)).add_(eps).rsqrt_()
            out = (whole * scale).mul_(weight_D).to(half)
        ctx.save_for_backward(x, weight_D, scale)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight_D, scale = ctx.saved_tensors
        if loops := _loops(x, weight_D, gradient.dtype):
            gradient = gradient.contiguous()
            of_x, parts_PD = torch.empty_like(x), weight_D.new_zeros(-(-scale.numel() // ROWS), len(weight_D))
            given = rows(gradient), rows(x), rows(weight_D)[0], scale.numpy().reshape(-1)
            loops.norm_backward(*given, rows(of_x), parts_PD.numpy())
            return of_x, parts_PD.sum(0), None, None
        normed, gradient = x.float() * scale, gradient.float()
        both = gradient * normed
        with torch.autocast(x.device.type, enabled=False):
            mean = (both @ weight_D).div_(len(weight_D))[..., None]
        grad_x = (gradient * weight_D).addcmul_(normed, mean, value=-1.0).mul_(scale)
        return grad_x.to(x.dtype), both.flatten(0, -2).sum(0), None, None


def _loops(x: Tensor, weight_D: Tensor, half: torch.dtype) -> Any:
    """Compiled loops, or None where they do not apply or are slower."""
    return loops_for(x) if (weight_D.dtype, half) == (torch.float32, torch.bfloat16) else None
