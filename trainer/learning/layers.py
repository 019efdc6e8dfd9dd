"""What may be done to each layer of a decoder: compute it again in the backward pass, compile it."""

from __future__ import annotations

from typing import Any, cast

from torch import nn
from transformers import PreTrainedModel


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder's layers in order; none where a class keeps them otherwise."""
    layers = getattr(model.get_decoder(), "layers", None)
    return list(layers) if isinstance(layers, nn.ModuleList) else []


def compute_again(model: PreTrainedModel) -> None:
    """Keep each layer's input alone, and compute the rest again in the backward pass: less memory, a third more work."""
    model.activation_checkpointing_enable({"use_reentrant": False})
    for layer in layers_of(model):
        # A cache is disabled in recomputed layers for fear of entries twice; ours (`parallel/context.py`) keeps none.
        cast(Any, layer)._can_checkpoint_with_cache = True


def compile_each(model: PreTrainedModel) -> None:
    """Compile the layers, in place; the first steps take long, and so does each new length of rows until torch has seen two."""
    for layer in layers_of(model):
        layer.compile()
