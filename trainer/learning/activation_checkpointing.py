"""Per-layer options of a decoder: activation checkpointing and compilation."""

from __future__ import annotations

from typing import Any, cast

from torch import nn
from transformers import PreTrainedModel


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder's layers in order; empty for a class with another structure."""
    layers = getattr(model.get_decoder(), "layers", None)
    return list(layers) if isinstance(layers, nn.ModuleList) else []


def apply_activation_checkpointing(model: PreTrainedModel) -> None:
    """Keep only each layer's input and recompute the rest in the backward pass: less memory, a third more work."""
    model.activation_checkpointing_enable({"use_reentrant": False})
    for layer in layers_of(model):
        # A cache is disabled in recomputed layers for fear of entries twice; ours (`distributed/context_parallel.py`) keeps none.
        cast(Any, layer)._can_checkpoint_with_cache = True


def compile_each(model: PreTrainedModel) -> None:
    """Compile the layers in place. The first steps are slow, as is each new row length until torch has seen two."""
    for layer in layers_of(model):
        layer.compile()
