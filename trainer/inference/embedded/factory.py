"""Selects the decoder of a policy: fused loops for dense models, the library's classes for mixture-of-experts models.

The library is imported only where a policy needs it: the import takes seconds and a hundred megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trainer.inference.embedded.devices import CPU
from trainer.inference.embedded.fused import FusedDecoder
from trainer.inference.embedded.kernels.loops import Loops, compiled_loops, prepare
from trainer.inference.embedded.model import Decoder, Weights
from trainer.inference.embedded.shape import WITH_EXPERTS, DecoderShape


def read_shape(policy_dir: Path) -> DecoderShape:
    """Decoder shape of a policy folder. Raises UnsupportedModel."""
    path = policy_dir / "config.json"
    try:
        config = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return DecoderShape.read(policy_dir)  # which says what is wrong
    return shape_of(config) if isinstance(config, dict) else DecoderShape.read(policy_dir)


def shape_of(config: dict[str, Any]) -> DecoderShape:
    """Decoder shape from the contents of a config.json. Raises UnsupportedModel."""
    if config.get("model_type") in WITH_EXPERTS:
        from trainer.inference.embedded.hf_moe import LibraryShape

        return LibraryShape.from_config(config)
    return DecoderShape.from_config(config)


def build_weights(
    shape: DecoderShape, state: Mapping[str, torch.Tensor], *, compiled: bool = True, device: torch.device = CPU
) -> Weights:
    """Weights of one version, ready to be swapped in; `compiled` and `device` as its decoder. Raises UnsupportedModel."""
    if shape.model_type in WITH_EXPERTS:
        from trainer.inference.embedded.hf_moe import library_weights

        return library_weights(shape, state, device)
    return Weights.build(shape, state, compiled=compiled, device=device)


def build_decoder(
    shape: DecoderShape,
    state: Mapping[str, torch.Tensor],
    max_length: int,
    *,
    compiled: bool = True,
    device: torch.device = CPU,
) -> Decoder:
    """Build a decoder. It uses compiled loops where the machine has them, `device` is the CPU and `compiled` allows it;
    else torch's operators. Raises UnsupportedModel.
    """
    weights = build_weights(shape, state, compiled=compiled, device=device)
    return decoder_of(shape, weights, max_length, compiled=compiled, device=device)


def decoder_of(
    shape: DecoderShape, weights: Weights, max_length: int, *, compiled: bool = True, device: torch.device = CPU
) -> Decoder:
    """Decoder for weights of `build_weights`, with the same `compiled` and `device`."""
    loops: Loops | None = None
    if compiled and device == CPU:
        prepare()
        loops = compiled_loops()
    if shape.model_type in WITH_EXPERTS:
        from trainer.inference.embedded.hf_moe import LibraryDecoder

        return LibraryDecoder(shape, weights, loops)
    return FusedDecoder(shape, weights, max_length, loops) if loops else Decoder(shape, weights, max_length)
