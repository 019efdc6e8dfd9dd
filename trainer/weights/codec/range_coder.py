"""Adaptive binary range coder, compiled by numba where it is installed. The same source runs as plain Python elsewhere.

An interval of up to 2^48 values is cut at each decision in the ratio of its odds, which follow what was coded before.
Carries run back into the bytes that are already written, as in LZMA. All numbers fit into a signed 64-bit integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    import numba

    compiled: Callable[[Any], Any] = numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
    IS_COMPILED = True
except (ImportError, RuntimeError):  # RuntimeError: numba finds no folder to keep compiled code in

    def compiled(function: Any) -> Any:
        return function

    IS_COMPILED = False

Coder = tuple[int, int, int]
"""Low end of the interval (decoder: how far the code lies above it), its width, the next byte."""
Odds = npt.NDArray[np.int32]
"""Of each kind of decision: the chance of a one in 1/65536, times 256, plus the decisions that it has learnt from."""
FULL, SMALL, TOP = 1 << 48, 1 << 40, 40
NEW = (0, FULL - 1, 0)
LEAST = 32
"""Of the chances of both outcomes, in 1/65536."""
PATIENCE = 255
"""After so many decisions the odds are an average of about as many."""
RATES = np.array([65536 / (seen + 1.5) for seen in range(PATIENCE + 1)], np.int64)
READ_AHEAD = 6
"""Bytes that a decoder reads beyond the last one, at most."""


def new_odds(decisions: int) -> Odds:
    return np.full(decisions, 1 << 23, np.int32)


@compiled
def put_bit(coder: Coder, out: Any, odds: Any, index: int, bit: int) -> Coder:
    """Code one decision and learn from it. `out` needs 16 bytes to spare."""
    low, width, at = coder
    known = int(odds[index])
    chance, seen = known >> 8, known & 255
    bound = (width >> 16) * chance
    if bit:
        width = bound
        chance += ((65536 - LEAST - chance) * RATES[np.uint32(seen)]) >> 16
    else:
        low += bound
        width -= bound
        chance += ((LEAST - chance) * RATES[np.uint32(seen)]) >> 16
    odds[index] = (chance << 8) | min(seen + 1, PATIENCE)
    while width < SMALL:
        low, width, at = shift_out(low, width, at, out)
    return low, width, at


@compiled
def put_even(coder: Coder, out: Any, value: int, bits: int) -> Coder:
    """Code `bits` bits that nothing is known about, at most 16."""
    low, width, at = coder
    width >>= bits
    low += value * width
    while width < SMALL:
        low, width, at = shift_out(low, width, at, out)
    return low, width, at


@compiled
def shift_out(low: int, width: int, at: int, out: Any) -> Coder:
    if low >= FULL:
        back = at - 1
        while out[back] == 255:
            out[back] = 0
            back -= 1
        out[back] += 1
    out[at] = (low >> TOP) & 255
    return (low & (SMALL - 1)) << 8, width << 8, at + 1


@compiled
def finish(coder: Coder, out: Any) -> int:
    """Write what the decoder needs to tell the last interval; returns how many bytes there are."""
    low, width, at = coder
    low += width - 1
    return shift_out(low - (low & (SMALL - 1)), width, at, out)[2]


@compiled
def start(data: Any) -> Coder:
    code = 0
    for at in range(READ_AHEAD):
        code = (code << 8) | next_byte(data, at)
    return min(code, FULL - 2), FULL - 1, READ_AHEAD  # more is no code; it would grow without bounds


@compiled
def next_byte(data: Any, at: int) -> int:
    return int(np.int64(data[np.uint64(at)])) if at < data.size else 0


@compiled
def get_bit(coder: Coder, data: Any, odds: Any, index: int) -> tuple[int, Coder]:
    """Inverse of `put_bit`."""
    code, width, at = coder
    known = int(odds[np.uint32(index)])
    chance, seen = known >> 8, known & 255
    bound = (width >> 16) * chance
    bit = int(code < bound)
    code -= 0 if bit else bound
    width = bound if bit else width - bound
    chance += (((65536 - LEAST if bit else LEAST) - chance) * RATES[np.uint32(seen)]) >> 16
    odds[np.uint32(index)] = (chance << 8) | min(seen + 1, PATIENCE)
    while width < SMALL:
        width <<= 8
        code = (code << 8) | next_byte(data, at)
        at += 1
    return bit, (code, width, at)


@compiled
def get_even(coder: Coder, data: Any, bits: int) -> tuple[int, Coder]:
    """Inverse of `put_even`."""
    code, width, at = coder
    width >>= bits
    value = min(code // width, (1 << bits) - 1)
    code = min(code - value * width, width - 1)
    while width < SMALL:
        width <<= 8
        code = (code << 8) | next_byte(data, at)
        at += 1
    return value, (code, width, at)
