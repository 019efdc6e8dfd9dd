"""Lossless coding of words against their previous version. Works on bit patterns, never on numbers.

Signed zeros, infinities and NaN payloads survive because nothing is ever computed with them.

`fast`: gaps between changed words and differences of the raw words, zstd.
`small`: the same, with positions ordered by the receiver's old exponent, on which the chance of a change depends.
Where many words change, XOR in byte planes and zstd is tried as well, and the shorter of the two is kept.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal, get_args

import numpy as np

from trainer.weights.codec import block, numpy_loops
from trainer.weights.codec.streams import Loops, Streams
from trainer.weights.codec.words import FORMATS, Bytes, WordFormat

__all__ = ["FORMATS", "MODES", "Bytes", "Mode", "WordFormat", "decode", "encode", "loops", "prepare"]

log = logging.getLogger(__name__)
Mode = Literal["small", "fast"]
MODES: tuple[Mode, ...] = get_args(Mode)
_TRY_DENSE = 0.2
"""Share of changed words above which the dense form can be the shorter one."""


@cache
def loops(*, compiled: bool = True) -> Loops:
    """The compiled loops where numba is installed, otherwise numpy's."""
    if compiled:
        try:
            from trainer.weights.codec import numba_loops

            return numba_loops
        except (ImportError, RuntimeError) as error:  # RuntimeError: numba finds no folder to keep compiled code in
            log.info("weights are coded without compiled loops, which is slower: %s", error)
    return numpy_loops


@cache
def prepare(form: WordFormat) -> None:
    """Loads (on a new machine: compiles) the loops for these words now; the first delta would wait seconds for it."""
    old = np.zeros(64, np.uint8)
    new = old.copy()
    new[0] = 1
    for mode in MODES:
        decode(old, encode(old, new, form, mode), form, np.empty_like(old))


def encode(base: Bytes, new: Bytes, form: WordFormat, mode: Mode = "small", using: Loops | None = None) -> bytes:
    """Codes `new` against `base`: flat bytes of equal length, whole words, at most `block.MAX_WORDS` of them."""
    assert base.shape == new.shape and base.ndim == 1 and base.size % form.size == 0
    old, fresh = base.view(form.words), new.view(form.words)
    assert old.size <= block.MAX_WORDS
    ordered = mode == "small" and form.mask > 0
    used = form if ordered else block.plain(form)
    streams = (using or loops()).split(old, fresh, used)
    sparse = block.pack_sparse(block.ORDERED if ordered else block.PLAIN, old.size, form, streams)
    if streams.changed <= _TRY_DENSE * old.size:
        return sparse
    dense = block.pack_dense(old, fresh, form)
    return min(sparse, dense, key=len)


def decode(base: Bytes, payload: bytes | memoryview, form: WordFormat, out: Bytes, using: Loops | None = None) -> None:
    """Inverse of `encode`, into `out`, which shares no memory with `base`.

    Raises CorruptPayload when `payload` cannot be of these words; `out` is of no use then.
    """
    old, fresh = base.view(form.words), out.view(form.words)
    kind, content = block.unpack(memoryview(payload), old.size, form)
    if isinstance(content, Streams):
        (using or loops()).join(old, content, form if kind == block.ORDERED else block.plain(form), fresh)
    else:
        np.bitwise_xor(base, content, out=out)
