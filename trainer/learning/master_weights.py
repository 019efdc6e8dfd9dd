"""float32 master weights behind parameters that hold their bfloat16 rounding.

The sampler computes with the published bfloat16 weights. If the trainer's forward pass uses the unrounded ones, its
log-probabilities differ from the sampler's although nothing is stale. Here parameters hold the rounded values between
steps, in float32, and the 16 bits that rounding takes away are kept beside them. The optimizer gets the exact weights
back for its update, so updates smaller than a bfloat16 step add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

LOW_KEY = "master_low"
"""Suffix of the saved tensors: `<parameter name>|master_low`."""
LARGEST = 2**15 - 1


class MasterWeights:
    """The trained parameters of a model, rounded from now on. Needs 2 bytes a parameter."""

    def __init__(self, model: nn.Module) -> None:
        """Rounds the float32 parameters of `model` in place."""
        self._parameters = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and parameter.dtype == torch.float32
        }
        self._low: dict[str, Tensor] = {}
        self._round()

    @contextmanager
    def exact(self) -> Iterator[None]:
        """The parameters hold the master weights inside the block, and their rounding after it."""
        self._restore()
        try:
            yield
        finally:
            self._round()

    @torch.no_grad()
    def _round(self) -> None:
        for name, parameter in self._parameters.items():
            rounded = parameter.bfloat16().float()
            # A difference of 2^15 (a tie) does not fit: the master weight moves by one unit in its last place.
            low = (parameter.view(torch.int32) - rounded.view(torch.int32)).clamp_(max=LARGEST)
            self._low[name] = low.to(torch.int16)
            parameter.copy_(rounded)

    @torch.no_grad()
    def _restore(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.view(torch.int32).add_(self._low[name].to(torch.int32))

    def state_tensors(self) -> dict[str, Tensor]:
        """The 16 low bits of each parameter, on the CPU."""
        return {f"{name}|{LOW_KEY}": low.cpu() for name, low in self._low.items()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `state_tensors()`. Parameters without any keep what they were built with. Raises ValueError."""
        for full, low in tensors.items():
            name = full.removesuffix(f"|{LOW_KEY}")
            parameter = self._parameters.get(name)
            if parameter is None or parameter.shape != low.shape or low.dtype != torch.int16:
                raise ValueError(
                    f"master weights of {name!r} do not fit this policy: the checkpoint is of another model"
                )
            self._low[name] = low.to(parameter.device).clone()


def is_low(name: str) -> bool:
    """Whether a saved tensor is one of `MasterWeights.state_tensors`."""
    return name.endswith(f"|{LOW_KEY}")
