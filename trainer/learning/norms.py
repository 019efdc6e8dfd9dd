"""RMS norms in a pass of half precision: one step each way, and an output in half precision.

The library computes such a norm as six operators and hands on float32, which each projection behind it (three for
attention, two for the gated layer) casts for itself and keeps. Here the sums are still float32, the output is cast
once, and for the backward pass only the input and one number a token are kept. Outside of autocast the library's own
formula runs, bit for bit.

    y = x·s·w,   s = 1/√(mean x² + ε),   ∂x = s·(g·w − x·s·mean(g·w·x·s)),   ∂w = Σ g·x·s

With few threads both steps are compiled loops, where there is a compiler: torch's operators pass over memory a dozen times.

Shape suffixes: D width of what is normed.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

FEW_THREADS = 4
"""Up to so many a loop of one thread is quicker than torch's operators with all."""
ROWS = 512
"""Whose gradients of the weight are summed in one go."""


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
        if _compiled(x, weight_D, half):
            out, scale = torch.empty_like(x, dtype=half), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)
            _loops().norm_forward(_rows(x), _rows(weight_D)[0], np.float32(eps), _rows(out), scale.numpy().reshape(-1))
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
        if _compiled(x, weight_D, gradient.dtype):
            gradient = gradient.contiguous()
            of_x, parts_PD = torch.empty_like(x), weight_D.new_zeros(-(-scale.numel() // ROWS), len(weight_D))
            given = _rows(gradient), _rows(x), _rows(weight_D)[0], scale.numpy().reshape(-1)
            _loops().norm_backward(*given, _rows(of_x), parts_PD.numpy())
            return of_x, parts_PD.sum(0), None, None
        normed, gradient = x.float() * scale, gradient.float()
        both = gradient * normed
        with torch.autocast(x.device.type, enabled=False):
            mean = (both @ weight_D).div_(len(weight_D))[..., None]
        grad_x = (gradient * weight_D).addcmul_(normed, mean, value=-1.0).mul_(scale)
        return grad_x.to(x.dtype), both.flatten(0, -2).sum(0), None, None


def _compiled(x: Tensor, weight_D: Tensor, half: torch.dtype) -> bool:
    """Whether the loops can compute this, and are quicker."""
    known = x.dtype in (torch.float32, torch.bfloat16) and x.is_contiguous() and x.numel() > 0
    return (
        known
        and (weight_D.dtype, half) == (torch.float32, torch.bfloat16)
        and x.device.type == "cpu"
        and torch.get_num_threads() <= FEW_THREADS
        and _loops() is not None
    )


@cache
def _loops() -> Any:
    """None where numba is not installed."""
    try:
        from trainer.learning import numba_norms
    except (ImportError, RuntimeError):  # RuntimeError: numba finds no folder to keep compiled code in
        return None
    return numba_norms


def _rows(tensor: Tensor) -> npt.NDArray[Any]:
    """A contiguous tensor as rows [R, D]; bfloat16, which numpy lacks, as its bits."""
    whole = tensor.detach().view(-1, tensor.shape[-1])
    return (whole.view(torch.uint16) if whole.dtype == torch.bfloat16 else whole).numpy()
