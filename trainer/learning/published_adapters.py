"""Adapters whose forward pass uses the weights that are published: merged, then rounded to bfloat16.

What `master_weights.py` does for policies whose weights are all trained. Between steps an adapted layer holds the published
weight, and its own one is kept beside it: in 2 bytes a number where bfloat16 holds it exactly, as for a policy in
bfloat16. Outputs and the gradients of inputs are those of the published weight; adapters get the gradients that they
would get without rounding (straight through).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainer.learning.lora import NAME, Adapters


class PublishedAdapters:
    """The layers of a model with adapters, rounded from now on. Same methods as `MasterWeights`."""

    def __init__(self, adapters: Adapters) -> None:
        """Rounds the frozen float32 weights of the model in place, too: nothing ever needs more of them."""
        self._layers: list[tuple[Any, Tensor]] = []
        for _, found in adapters.layers():
            layer: Any = found
            weight = layer.base_layer.weight.detach()
            half = weight.bfloat16()
            self._layers.append((layer, half if torch.equal(half.to(weight.dtype), weight) else weight.clone()))
            layer.forward = partial(_forward, layer)
        with torch.no_grad():
            for parameter in adapters.model.parameters():
                if not parameter.requires_grad and parameter.dtype == torch.float32:
                    parameter.copy_(parameter.bfloat16())
        adapters.in_place = True
        self._round()

    @contextmanager
    def exact(self) -> Iterator[None]:
        """For an update of the adapters: the published weights follow after the block."""
        yield
        self._round()

    @torch.no_grad()
    def _round(self) -> None:
        for layer, own in self._layers:
            weight = layer.base_layer.weight
            weight.copy_((own.to(weight.dtype) + layer.get_delta_weight(NAME)).bfloat16())

    def state_tensors(self) -> dict[str, Tensor]:
        """None: the adapters are saved, and the weights below them are those of the starting policy."""
        return {}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Follow adapters that were read from a checkpoint."""
        self._round()


def _forward(layer: Any, x: Tensor) -> Tensor:
    """The adapters' own product adds nothing but their gradients."""
    adapted = layer.lora_B[NAME](layer.lora_A[NAME](x.detach())) * layer.scaling[NAME]
    result: Tensor = layer.base_layer(x)
    return result + (adapted - adapted.detach()).to(result.dtype)
