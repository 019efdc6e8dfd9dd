"""Checkpoints in fp8 and int4 as bf16 weights: training starts from exact bf16 values of what was published.

| layout | tensors of one matrix | values |
|---|---|---|
| fp8, scaled by blocks (DeepSeek-V3, Kimi K2) | `weight` (e4m3), `weight_scale_inv` [rows/b, columns/b] | weight · scale |
| fp8, scaled by rows or tensors (compressed-tensors) | `weight`, `weight_scale` [rows, 1] or [1] | weight · scale |
| int4 in groups (compressed-tensors `pack-quantized`, Kimi K2 Thinking and K2.5) | `weight_packed` [rows, columns/8] int32, \
`weight_scale` [rows, columns/g], `weight_shape` | (nibble - 8) · scale |

Other layouts are refused by name. One tensor is in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from trainer.policy.errors import PolicyUnreadable
from trainer.policy.importing.headers import INDEX
from trainer.policy.importing.headers import Tensor as Stored

PACKED, SHAPE, SCALE, SCALE_INV = ".weight_packed", ".weight_shape", ".weight_scale", ".weight_scale_inv"
SIDE = (PACKED, SHAPE, SCALE, SCALE_INV, ".input_scale", ".k_scale", ".v_scale", ".weight_zero_point")
NIBBLES = 8
"""int4 values in an int32, the lowest first."""
ZERO = 8
"""Offset of a stored int4 value."""
SHARD_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a checkpoint stores its weights."""

    kind: str
    """`fp8` or `int4`."""
    words: str
    """For people: the layout and what is made of it."""


def quantization_of(folder: Path, config: Mapping[str, Any]) -> Quantization | None:
    """None for plain weights. Raises PolicyUnreadable: a layout that is not read."""
    settings = config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config")
    if not settings:
        return None
    method = str(settings.get("quant_method", ""))
    if method == "fp8":
        block = settings.get("weight_block_size")
        scaled = f"blocks of {block[0]} × {block[1]}" if block else "tensors"
        return Quantization("fp8", f"fp8 (e4m3) scaled by {scaled}, dequantised to bfloat16: weight · scale")
    if method == "compressed-tensors":
        return _compressed(folder, settings)
    raise PolicyUnreadable(
        folder, "quantization_config", f"weights quantised by {method or 'an unnamed method'} are not read",
        "Import the bf16 checkpoint; fp8 by blocks and int4 by groups (compressed-tensors) are read, too.",
    )  # fmt: skip


def _compressed(folder: Path, settings: Mapping[str, Any]) -> Quantization:
    groups = list((settings.get("config_groups") or {}).values())
    weights = [group.get("weights") or {} for group in groups]
    form = str(settings.get("format", ""))
    if form == "pack-quantized" and all(w.get("num_bits") == 4 and w.get("symmetric", True) for w in weights):
        sizes = ", ".join(sorted({str(w.get("group_size")) for w in weights}))
        return Quantization("int4", f"int4 in groups of {sizes}, dequantised to bfloat16: (value - 8) · scale")
    if form == "float-quantized" and all(w.get("num_bits") == 8 for w in weights):
        return Quantization("fp8", "fp8 (e4m3) scaled by rows or tensors, dequantised to bfloat16: weight · scale")
    raise PolicyUnreadable(
        folder, "quantization_config", f"compressed-tensors of the format {form!r} are not read",
        "Import the bf16 checkpoint; symmetric int4 (pack-quantized) and fp8 (float-quantized) are read, too.",
    )  # fmt: skip


def unpack_int4(packed: Tensor, shape: tuple[int, int]) -> Tensor:
    """int32 words [rows, ceil(columns / 8)] to int8 values in -8…7 [rows, columns]."""
    rows, columns = shape
    shifts = torch.arange(NIBBLES, dtype=torch.int32) * 4
    values = (packed.unsqueeze(-1) >> shifts) & 0xF
    return (values.reshape(rows, -1)[:, :columns] - ZERO).to(torch.int8)


def dequantize(values: Tensor, scale: Tensor) -> Tensor:
    """`values` [rows, columns] times a scale for each block: [rows/b, columns/c], [rows, 1] or [1]; in bfloat16.

    The product is rounded once, from float32.
    """
    rows, columns = values.shape
    if scale.numel() == 1:
        return (values.float() * scale.float().reshape(())).bfloat16()
    down, across = -(-rows // scale.shape[0]), -(-columns // scale.shape[1])
    wide = scale.float().repeat_interleave(down, 0)[:rows].repeat_interleave(across, 1)[:, :columns]
    return (values.float() * wide).bfloat16()


class Weights:
    """Reads the tensors of a folder one at a time, dequantised."""

    def __init__(self, folder: Path, stored: Mapping[str, Stored], block: tuple[int, int] | None) -> None:
        self._folder, self._stored, self._block = folder, stored, block
        self._files: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """Names of the dequantised tensors."""
        plain = [name for name in self._stored if not name.endswith(SIDE)]
        return plain + [name.removesuffix(PACKED) + ".weight" for name in self._stored if name.endswith(PACKED)]

    def read(self, name: str) -> Tensor:
        """Raises KeyError: a scale is missing."""
        base = name.removesuffix(".weight")
        if base + PACKED in self._stored:
            shape = tuple(int(n) for n in self._tensor(base + SHAPE).tolist())
            values = unpack_int4(self._tensor(base + PACKED), cast(tuple[int, int], shape))
            return dequantize(values, self._tensor(base + SCALE))
        value = self._tensor(name)
        if value.dtype != torch.float8_e4m3fn:
            return value
        if base + SCALE_INV in self._stored:
            return _by_blocks(value, self._tensor(base + SCALE_INV), self._block)
        return dequantize(value, self._tensor(base + SCALE))

    def _tensor(self, name: str) -> Tensor:
        file = self._stored[name].file
        if file not in self._files:
            self._files[file] = cast(Any, safe_open(self._folder / file, framework="pt"))
        return cast(Tensor, self._files[file].get_tensor(name))


def _by_blocks(values: Tensor, scale: Tensor, block: tuple[int, int] | None) -> Tensor:
    if block is None or scale.numel() == 1:
        return dequantize(values, scale)
    rows, columns = values.shape
    wide = scale.float().repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :columns]
    return (values.float() * wide).bfloat16()


def write_dequantized(
    folder: Path,
    target: Path,
    stored: Mapping[str, Stored],
    config: Mapping[str, Any],
    *,
    rename: Callable[[str], str | None] = lambda name: name,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write the folder's weights as plain shards and their index. `rename` gives a tensor's new name, None to leave it out.

    Raises PolicyUnreadable: a tensor lacks its scale.
    """
    settings = config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config") or {}
    block = settings.get("weight_block_size")
    weights = Weights(folder, stored, tuple(block) if block else None)
    shards: list[list[str]] = []
    part: dict[str, Tensor] = {}
    size = total = 0

    def flush() -> None:
        nonlocal part, size
        if part:
            save_file(part, target / f"part-{len(shards):05d}", metadata={"format": "pt"})
            shards.append(sorted(part))
        part, size = {}, 0

    for name in weights.names:
        new = rename(name)
        if new is None:
            continue
        try:
            value = weights.read(name).contiguous()
        except KeyError as error:
            raise PolicyUnreadable(
                folder, "weights", f"{name} is quantised and {error} is in no file", "Download the checkpoint again."
            ) from error
        if size + value.nbytes > shard_bytes:
            flush()
        part[new], size, total = value, size + value.nbytes, total + value.nbytes
    flush()
    places: dict[str, str] = {}
    for number, names in enumerate(shards):
        final = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (target / f"part-{number:05d}").rename(target / final)
        places |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (target / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
