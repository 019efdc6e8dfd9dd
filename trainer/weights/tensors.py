"""Tensors as the bytes that are published: names, dtypes, shapes and flat little-endian memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from trainer.weights.codec import Bytes

DTYPES: dict[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class RawTensor:
    """One tensor as published. `data` is never written after construction; versions share unchanged ones."""

    dtype: str
    shape: tuple[int, ...]
    data: Bytes

    @property
    def word(self) -> int:
        return DTYPES[self.dtype].itemsize

    def digest(self) -> str:
        """sha256 of dtype, shape and memory, in hex."""
        head = f"{self.dtype}:{','.join(map(str, self.shape))}:".encode()
        return hashlib.sha256(head + self.data.tobytes()).hexdigest()

    def tensor(self) -> torch.Tensor:
        """A fresh tensor that owns its memory."""
        return torch.from_numpy(self.data.copy()).view(DTYPES[self.dtype]).reshape(self.shape)


RawState = dict[str, RawTensor]


def freeze(state: Mapping[str, torch.Tensor], dtype: str) -> tuple[RawState, dict[str, str]]:
    """Copies `state` to publishable bytes; floating tensors are cast to `dtype`, others stay as they are.

    Returns the tensors and the aliases (tied weights): name → name of the tensor whose memory it shares.
    """
    raw: RawState = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[int, tuple[int, ...], tuple[int, ...]], str] = {}
    # The embedding is the canonical owner of a tied matrix, as in Hugging Face checkpoints.
    for name in sorted(state, key=lambda n: (n.startswith("lm_head."), n)):
        tensor = state[name].detach()
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        if tensor.numel() and key in seen:
            aliases[name] = seen[key]
            continue
        seen[key] = name
        if tensor.is_floating_point():
            tensor = tensor.to(DTYPES[dtype])
        if tensor.dtype not in NAMES:
            raise ValueError(f"tensor {name} has dtype {tensor.dtype}; publish one of {', '.join(DTYPES)}")
        flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().copy()
        raw[name] = RawTensor(NAMES[tensor.dtype], tuple(tensor.shape), flat)
    return raw, aliases


def thaw(raw: RawState, aliases: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """Tensors of a published state; aliases share memory again."""
    state = {name: tensor.tensor() for name, tensor in raw.items()}
    for alias, name in aliases.items():
        state[alias] = state[name]
    return state


def version_digest(digests: Mapping[str, str], aliases: Mapping[str, str]) -> str:
    """One digest for a whole version, from its per-tensor digests."""
    text = json.dumps([sorted(digests.items()), sorted(aliases.items())], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
