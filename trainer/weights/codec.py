"""Lossless coding of one tensor against its previous version: XOR of the raw words, byte planes, zstd.

Works on bit patterns, never on numbers, so NaN payloads, signed zeros and infinities survive. A step of
AdamW leaves most bf16 words as they were, so the planes are mostly zero; splitting a word into planes puts
the often-zero high bytes together. Words are little-endian.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import zstandard

from trainer.weights.errors import CorruptPayload

Bytes = npt.NDArray[np.uint8]
"""Flat uint8 view of one tensor's memory."""

ENCODING: Final = "xor-planes-zstd"
LEVEL = 1  # levels 3 and 9 gained nothing on real deltas and cost 3-10x the time


def encode(base: Bytes, new: Bytes, word: int) -> bytes:
    """Codes `new` against `base`; both are flat bytes of equal length, `word` is the element size in bytes."""
    assert base.shape == new.shape and base.ndim == 1 and base.size % word == 0
    difference = np.bitwise_xor(base, new)
    planes = np.ascontiguousarray(difference.reshape(-1, word).T)
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(planes.tobytes())


def decode(base: Bytes, payload: bytes, word: int) -> Bytes:
    """Inverse of `encode`, into fresh memory. Raises CorruptPayload when `payload` cannot be of this tensor."""
    try:
        size = zstandard.frame_content_size(payload)
        if size != base.size:  # checked first, so that a forged frame cannot make us allocate
            raise CorruptPayload(f"delta holds {size} bytes, the tensor has {base.size}")
        planes = zstandard.ZstdDecompressor().decompress(payload, max_output_size=base.size)
    except zstandard.ZstdError as error:
        raise CorruptPayload(f"delta does not decompress: {error}") from error
    difference = np.frombuffer(planes, np.uint8).reshape(word, -1).T.reshape(-1)
    return np.bitwise_xor(base, difference)
