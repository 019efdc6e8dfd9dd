"""RMS norms in a pass of half precision: one step each way, and an output in half precision.

The library computes such a norm as six operators and hands on float32, which each projection behind it (three for
attention, two for the gated layer) casts for itself and keeps. Here the sums are still float32, the output is cast
once, and for the backward pass only the input and one number a token are kept. Outside of autocast the library's own
formula runs, bit for bit.

    y = x·s·w,   s = 1/√(mean x² + ε),   ∂x = s·(g·w − x·s·mean(g·w·x·s)),   ∂w = Σ g·x·s

Shape suffixes: D width of what is normed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn


def norm_in_half(model: nn.Module) -> None:
    """Let the RMS norms of `model` give half precision wherever autocast is on."""
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
        whole = x.float()
        length = torch.linalg.vector_norm(whole, dim=-1, keepdim=True)
        scale = length.square_().div_(len(weight_D)).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight_D, scale)
        return (whole * scale).mul_(weight_D).to(half)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight_D, scale = ctx.saved_tensors
        normed, gradient = x.float() * scale, gradient.float()
        both = gradient * normed
        with torch.autocast(x.device.type, enabled=False):
            mean = (both @ weight_D).div_(len(weight_D))[..., None]
        grad_x = (gradient * weight_D).addcmul_(normed, mean, value=-1.0).mul_(scale)
        return grad_x.to(x.dtype), both.flatten(0, -2).sum(0), None, None
