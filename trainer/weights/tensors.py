"""Tensors in published form: names, dtypes, shapes and flat little-endian memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from trainer.weights.codec import FORMATS, Bytes, WordFormat
from trainer.weights.digests import count, piece_digest

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in FORMATS}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_CAST = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Floating-point types that are cast to the store's dtype. Quantised types stay unchanged."""

DRAFT_HEAD = "draft_head."
"""Prefix of a draft head's tensors in a version. They travel with the policy's and are none of its tensors."""


@dataclass(frozen=True)
class Slice:
    """A rank's part of a tensor: consecutive elements in row-major order, as dim-0 sharding produces them."""

    local: torch.Tensor
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    start: int
    """Index of the first element in the flattened tensor."""


@dataclass(frozen=True)
class RawTensor:
    """A tensor as published, or a rank's part of it. `data` is never written after construction."""

    dtype: str
    shape: tuple[int, ...]
    data: Bytes
    start: int = 0
    """Word of the whole tensor at which `data` begins."""

    @property
    def form(self) -> WordFormat:
        return FORMATS[self.dtype]

    @property
    def words(self) -> int:
        """Number of words in `data`."""
        return self.data.size // self.form.size

    @property
    def stop(self) -> int:
        return self.start + self.words

    @property
    def place(self) -> tuple[str, tuple[int, ...], int, int]:
        """Properties that must match for delta coding between two tensors."""
        return self.dtype, self.shape, self.start, self.stop

    def digest(self) -> str:
        """sha256 of dtype, shape, place and memory, in hex."""
        return piece_digest(self.dtype, self.shape, self.start, self.data)

    def tensor(self) -> torch.Tensor:
        """New tensor that owns its memory."""
        flat = torch.from_numpy(self.data.copy()).view(DTYPES[self.dtype])
        return flat if self.words != count(self.shape) else flat.reshape(self.shape)


RawState = dict[str, RawTensor]


class Frozen(NamedTuple):
    """A published state at one moment; it shares no memory with its source."""

    raw: RawState
    aliases: dict[str, str]
    """Tied weights: name → name of the tensor whose memory it shares."""


def freeze(state: Mapping[str, torch.Tensor | Slice], dtype: str) -> Frozen:
    """Copy `state` to publishable bytes; floating tensors are cast to `dtype`, others stay unchanged."""
    raw: RawState = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[int, tuple[int, ...], tuple[int, ...]], str] = {}
    # The embedding is the canonical owner of a tied matrix, as in Hugging Face checkpoints.
    for name in sorted(state, key=lambda n: (n.startswith("lm_head."), n)):
        given = state[name]
        part = given if isinstance(given, Slice) else Slice(given, tuple(given.shape), 0)
        tensor = part.local.detach()
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        if tensor.numel() and key in seen:
            aliases[name] = seen[key]
            continue
        seen[key] = name
        if tensor.dtype in _CAST:
            tensor = tensor.to(DTYPES[dtype])
        if tensor.dtype not in NAMES:
            raise ValueError(f"tensor {name} has dtype {tensor.dtype}; publish one of {', '.join(DTYPES)}")
        # Always a copy: `to`, `cpu` and `contiguous` make none when there is nothing to do, and the next step works in place.
        flat: Bytes = np.array(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())
        raw[name] = RawTensor(NAMES[tensor.dtype], part.shape, flat, part.start)
        if not 0 <= part.start <= raw[name].stop <= count(part.shape):
            raise ValueError(f"the slice of {name} from {part.start} does not fit into a tensor of {part.shape}")
    return Frozen(raw, aliases)


def thaw(raw: RawState, aliases: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """Tensors of a published state; aliases share memory again."""
    state = {name: tensor.tensor() for name, tensor in raw.items()}
    for alias, name in aliases.items():
        state[alias] = state[name]
    return state
