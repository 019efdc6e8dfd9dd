"""Which of the engine's two ways computes a policy: fused loops for dense decoders, the library's classes with experts.

The library is imported where a policy needs it: it takes seconds and a hundred megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trainer.inference.embedded.fused import FusedDecoder
from trainer.inference.embedded.loops import Loops, compiled_loops, prepare
from trainer.inference.embedded.model import Decoder, Weights
from trainer.inference.embedded.places import CPU
from trainer.inference.embedded.shape import WITH_EXPERTS, DecoderShape


def read_shape(policy_dir: Path) -> DecoderShape:
    """The sizes of a policy. Raises UnsupportedModel."""
    path = policy_dir / "config.json"
    try:
        config = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return DecoderShape.read(policy_dir)  # which says what is wrong
    return shape_of(config) if isinstance(config, dict) else DecoderShape.read(policy_dir)


def shape_of(config: dict[str, Any]) -> DecoderShape:
    """Of what a config.json holds. Raises UnsupportedModel."""
    if config.get("model_type") in WITH_EXPERTS:
        from trainer.inference.embedded.library import LibraryShape

        return LibraryShape.from_config(config)
    return DecoderShape.from_config(config)


def build_weights(
    shape: DecoderShape, state: Mapping[str, torch.Tensor], *, compiled: bool = True, device: torch.device = CPU
) -> Weights:
    """Of one version, ready to be swapped in; `compiled` and `device` as its decoder. Raises UnsupportedModel."""
    if shape.model_type in WITH_EXPERTS:
        from trainer.inference.embedded.library import library_weights

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
    """With compiled loops where the machine has them and `device` is the CPU, unless `compiled` forbids; else by torch's
    operators. Raises UnsupportedModel."""
    weights = build_weights(shape, state, compiled=compiled, device=device)
    return decoder_of(shape, weights, max_length, compiled=compiled, device=device)


def decoder_of(
    shape: DecoderShape, weights: Weights, max_length: int, *, compiled: bool = True, device: torch.device = CPU
) -> Decoder:
    """For weights of `build_weights`, with the same `compiled` and `device`."""
    loops: Loops | None = None
    if compiled and device == CPU:
        prepare()
        loops = compiled_loops()
    if shape.model_type in WITH_EXPERTS:
        from trainer.inference.embedded.library import LibraryDecoder

        return LibraryDecoder(shape, weights, loops)
    return FusedDecoder(shape, weights, max_length, loops) if loops else Decoder(shape, weights, max_length)
