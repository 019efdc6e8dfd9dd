"""Recorded router choices and sampling masks: wire format: base64 of zstd of little-endian integers, with their shape.

Sizes are validated before any allocation: the declared size against the shape, and the shape against its limits.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt
import zstandard
from pydantic import BaseModel, ConfigDict, Field

UNKNOWN = 0xFFFF
"""Placeholder for an unrecorded expert; the router chooses by itself."""
MAX_BYTES = 1 << 30
"""Maximum size of an unpacked array: a million positions of 64 layers with 8 experts."""

Experts = npt.NDArray[np.uint16]
"""[positions, layers, experts a token]"""


class ReplayRefused(ValueError):
    """The sampler's choices are impossible for these tokens or this policy. Nothing was trained on them."""


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoutedExperts(_Wire):
    """Experts by position, MoE layer and rank in the choice, for consecutive tokens that the model read.

    The row of position t holds the choice made while token t was read, so it affects the tokens after t. The last token
    of a sequence was never read and has no row.
    """

    start: int = Field(ge=0)
    """Position of the first row in its sequence."""
    rows: int = Field(ge=0)
    layers: int = Field(ge=1, le=1 << 12)
    top_k: int = Field(ge=1, le=1 << 10)
    data: str

    @classmethod
    def pack(cls, experts: Experts, *, start: int = 0) -> Self:
        rows, layers, top_k = experts.shape
        return cls(start=start, rows=rows, layers=layers, top_k=top_k, data=_pack(experts.astype("<u2", copy=False)))

    @property
    def stop(self) -> int:
        return self.start + self.rows

    def until(self, stop: int) -> Self:
        """Without the rows from position `stop` on. Raises ReplayRefused."""
        return self if self.stop <= stop else self.pack(self.unpack()[: max(0, stop - self.start)], start=self.start)

    def unpack(self) -> Experts:
        """Decode the array. Raises ReplayRefused."""
        flat = _unpack(self.data, self.rows * self.layers * self.top_k, np.dtype("<u2"), "routed experts")
        return flat.reshape(self.rows, self.layers, self.top_k)


class SamplingMasks(_Wire):
    """Sampling mask of consecutive tokens: ids allowed by top-k and top-p; probabilities are normalised over them.

    `counts` has one number per token: how many ids were allowed, 0 for the whole vocabulary (or a token not sampled).
    """

    tokens: int = Field(ge=0)
    open: int = Field(ge=0)
    """Total number of ids."""
    counts: str
    ids: str

    @classmethod
    def pack(cls, ids: Sequence[Sequence[int]]) -> Self:
        counts = np.array([len(one) for one in ids], "<u4")
        flat = np.array([index for one in ids for index in one], "<u4")
        return cls(tokens=len(ids), open=flat.size, counts=_pack(counts), ids=_pack(flat))

    def unpack(self) -> list[list[int]]:
        """Decode the ids. Raises ReplayRefused."""
        counts = _unpack(self.counts, self.tokens, np.dtype("<u4"), "counts of the sampling support")
        flat = _unpack(self.ids, self.open, np.dtype("<u4"), "ids of the sampling support")
        ends = np.cumsum(counts, dtype=np.int64)
        if (int(ends[-1]) if ends.size else 0) != flat.size:
            raise ReplayRefused(f"the sampling support counts {int(counts.sum())} ids and holds {flat.size}")
        return [part.tolist() for part in np.split(flat, ends[:-1])] if ends.size else []


def joined(parts: Sequence[RoutedExperts], stop: int) -> RoutedExperts | None:
    """Parts that follow one another as one, without the rows from position `stop` on. None without parts.

    Raises ReplayRefused when they do not follow one another or belong to different models.
    """
    if not parts:
        return None
    if any((a.stop, a.layers, a.top_k) != (b.start, b.layers, b.top_k) for a, b in pairwise(parts)):
        raise ReplayRefused(
            f"routed experts of positions {[(part.start, part.stop) for part in parts]} do not follow one another"
        )
    rows = np.concatenate([part.unpack() for part in parts])
    return RoutedExperts.pack(rows, start=parts[0].start).until(stop)


def merge(parts: Sequence[RoutedExperts], length: int) -> RoutedExperts | None:
    """Merge records of a sequence of `length` tokens; for overlapping positions the first part counts.

    None without parts. Raises ReplayRefused when the parts belong to different models or lie outside the sequence.
    """
    if not parts:
        return None
    layers, top_k = parts[0].layers, parts[0].top_k
    whole = np.full((max(0, length - 1), layers, top_k), UNKNOWN, np.uint16)
    known = 0
    for part in parts:
        if (part.layers, part.top_k) != (layers, top_k):
            raise ReplayRefused(
                f"routed experts come from {part.layers} layers with {part.top_k} each, then from {layers} with {top_k}"
            )
        if part.stop > len(whole):
            raise ReplayRefused(f"routed experts reach position {part.stop} of a sequence of {length} tokens")
        first = max(known, part.start)
        whole[first : part.stop] = part.unpack()[first - part.start :]
        known = max(known, part.stop)
    return RoutedExperts.pack(whole[:known])


def _pack(array: npt.NDArray[np.unsignedinteger]) -> str:
    return base64.b64encode(zstandard.compress(np.ascontiguousarray(array).tobytes(), 1)).decode()


def _unpack(data: str, count: int, dtype: np.dtype[np.unsignedinteger], what: str) -> npt.NDArray[np.unsignedinteger]:
    size = count * dtype.itemsize
    if size > MAX_BYTES:
        raise ReplayRefused(f"{what} promise {size} bytes, {MAX_BYTES} are the most")
    try:
        frame = base64.b64decode(data, validate=True)
        promised = zstandard.frame_content_size(frame)
        if promised != size:
            raise ReplayRefused(f"{what} hold {promised} bytes where {size} belong")
        plain = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except (binascii.Error, zstandard.ZstdError, ValueError) as error:
        if isinstance(error, ReplayRefused):
            raise
        raise ReplayRefused(f"{what} do not unpack: {error}") from error
    if len(plain) != size:
        raise ReplayRefused(f"{what} hold {len(plain)} bytes where {size} belong")
    return np.frombuffer(plain, dtype)
