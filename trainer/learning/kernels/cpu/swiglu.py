"""Fused SwiGLU for bf16 passes: the elementwise part between the matrix products, in one step each way.

The library computes silu(g)·u as two operators and keeps the intermediate result for the backward pass; here only g and
u are kept. Outside of autocast, with many threads or without a compiler the library's own operators run.

    y = g·σ(g)·u,   ∂u = ∂y·g·σ(g),   ∂g = ∂y·u·σ(g)·(1 + g·(1 − σ(g)))
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from trainer.learning.kernels.cpu.bf16 import loops_for, rows


def fuse_swiglu(model: nn.Module) -> None:
    """Use this path in the gated layers of `model` wherever autocast to bfloat16 is on."""
    for module in model.modules():
        if all(hasattr(module, part) for part in ("gate_proj", "up_proj", "down_proj")) and _is_silu(module):
            module.forward = partial(_forward, module, module.forward)


def _is_silu(module: Any) -> bool:
    return type(getattr(module, "act_fn", None)).__name__ in ("SiLU", "SiLUActivation")


def _forward(module: Any, library: Any, x: Tensor) -> Tensor:
    if not torch.is_autocast_enabled(x.device.type) or loops_for(x) is None:
        return cast(Tensor, library(x))
    gate, up = module.gate_proj(x), module.up_proj(x)
    if not gate.dtype == up.dtype == torch.bfloat16:
        return cast(Tensor, module.down_proj(module.act_fn(gate) * up))
    return cast(Tensor, module.down_proj(_Gate.apply(gate, up)))


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        loops_for(gate, up).gate_forward(rows(gate), rows(up), rows(out))
        ctx.save_for_backward(gate, up)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_gate, of_up = torch.empty_like(gate), torch.empty_like(up)
        loops_for(gate, up, gradient).gate_backward(rows(gradient), rows(gate), rows(up), rows(of_gate), rows(of_up))
        return of_gate, of_up
