"""Words of a tensor: how wide one is, and which of its bits say how likely it changes.

A weight changes when the optimiser's step is larger than half its spacing, and the spacing is set by the exponent.
The receiver holds the old exponent, so it costs nothing to order positions by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
"""Flat uint8 view of memory."""
Words = npt.NDArray[np.unsignedinteger]
"""Flat little-endian words of one, two, four or eight bytes."""


@dataclass(frozen=True)
class WordFormat:
    """`(word >> shift) & mask` is the context of a word: its exponent, for the floating types."""

    size: int
    """Bytes."""
    shift: int = 0
    mask: int = 0
    """0: all words have one context."""

    @property
    def words(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype(f"<u{self.size}")


FORMATS: dict[str, WordFormat] = {
    "bfloat16": WordFormat(2, 7, 0xFF),
    "float16": WordFormat(2, 10, 0x1F),
    "float32": WordFormat(4, 23, 0xFF),
    "float64": WordFormat(8, 52, 0x7FF),
    "float8_e4m3fn": WordFormat(1, 3, 0x0F),
    "float8_e4m3fnuz": WordFormat(1, 3, 0x0F),
    "float8_e5m2": WordFormat(1, 2, 0x1F),
    "float8_e5m2fnuz": WordFormat(1, 2, 0x1F),
    "float8_e8m0fnu": WordFormat(1),  # block scales: an exponent and nothing else
    "float4_e2m1fn_x2": WordFormat(1, 0, 0x77),  # two values a byte: both magnitudes, no signs
    "int64": WordFormat(8),
    "int32": WordFormat(4),
    "int16": WordFormat(2),
    "int8": WordFormat(1),
    "uint8": WordFormat(1, 0, 0x77),  # as checkpoints store packed fp4
    "bool": WordFormat(1),
}
"""By the name of the torch dtype."""
