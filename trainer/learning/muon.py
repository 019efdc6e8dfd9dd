"""Muon for stacked matrices [E, m, n], such as a mixture-of-experts layer's experts in one parameter.

torch's own Muon takes single matrices only. Each matrix of a stack gets the same update that torch's Muon would give it
alone: momentum, Nesterov, Newton-Schulz in bfloat16, and the scale that matches AdamW's step size.

Shape suffixes: E matrices, m rows, n columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic Newton-Schulz iteration, as published with Muon."""
ITERATIONS = 5
EPSILON = 1e-7
ADAMW_RMS = 0.2
"""Root mean square of an AdamW update; Muon's updates are scaled to it (Moonlight)."""


def scaled_orthogonal(stack_Emn: Tensor) -> Tensor:
    """Orthogonalise each matrix of [E, m, n] approximately and scale it by 0.2·sqrt(max(m, n)); bfloat16."""
    a, b, c = COEFFICIENTS
    tall = stack_Emn.shape[1] > stack_Emn.shape[2]
    x = stack_Emn.bfloat16()
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.mT if tall else x
    return x * (ADAMW_RMS * math.sqrt(max(stack_Emn.shape[1:])))


class StackedMuon(torch.optim.Optimizer):
    """Muon over parameters of shape [E, m, n].

    `orthogonal` turns a parameter's updates into scaled orthogonal ones; ranks that hold parts of matrices exchange
    them there (`trainer/distributed/muon.py`). Everything else is elementwise.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        orthogonal: Callable[[Tensor], Tensor] = scaled_orthogonal,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._orthogonal = orthogonal

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply the gradients; parameters without a gradient stay unchanged."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter.grad)
                momentum = state["momentum_buffer"]
                momentum.lerp_(parameter.grad, 1.0 - group["momentum"])
                update = self._orthogonal(parameter.grad.lerp(momentum, group["momentum"]))
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"])
