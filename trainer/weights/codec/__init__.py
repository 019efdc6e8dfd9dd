"""Lossless coding of words against their previous version. Works on bit patterns, never on numbers.

Signed zeros, infinities and NaN payloads survive because nothing is ever computed with them.

`fast`: gaps between changed words and differences of the raw words, zstd. Words with exponents so small that many of
them change are counted apart, as bits: they are few, and hold a good part of the changes. `small`: a range coder whose
odds depend on the receiver's old exponent (`ranged`); where it does not fit (wide words, a tenth of them changed, no
compiler), gaps and differences ordered by that exponent and zstd. Where many words change, XOR in byte planes and zstd is
tried as well, and the shorter of the two is kept.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from trainer.weights.codec import block, numpy_loops, ranged
from trainer.weights.codec.streams import BitmapBlock, Loops, Streams
from trainer.weights.codec.words import FORMATS, Bytes, WordFormat, Words

__all__ = ["FORMATS", "MODES", "Bytes", "Mode", "WordFormat", "decode", "encode", "loops", "prepare"]

_RUNS, _RUN = 64, 1 << 10
"""Words whose contexts are counted to find where changes are crowded: so many runs of so many words."""
_CROWDED = 0.6
"""Share of the words of one context that has changed, from which on they are counted apart. Smaller: fewer bytes, but
more words to tell apart while decoding (at 0.5 4 % fewer, decoded at 0.6 of the speed where 2.4 % change)."""
_MAX_FLAGGED = 0.125
"""Largest share of all words that is counted apart."""
log = logging.getLogger(__name__)
Mode = Literal["small", "fast"]
MODES: tuple[Mode, ...] = get_args(Mode)
_TRY_DENSE = 0.2
"""Share of changed words above which the dense form can be the shorter one."""


@cache
def loops(*, compiled: bool = True) -> Loops:
    """Compiled loops where numba is installed, otherwise numpy's."""
    if compiled:
        try:
            from trainer.weights.codec import compiled as numba_loops

            return numba_loops
        except (ImportError, RuntimeError) as error:  # RuntimeError: numba finds no folder to keep compiled code in
            log.info("weights are coded without compiled loops, which is slower: %s", error)
    return numpy_loops


@cache
def prepare(form: WordFormat) -> None:
    """Load the loops for these words now (compile them on a new machine), so that the first delta does not wait
    seconds."""
    old = np.zeros(64, form.words)
    old[4:] = (form.mask << form.shift) & ((1 << (8 * form.size - 1)) - 1)
    for changed in ((1, 2, 9), (9,)):  # the first has words to count apart
        new = old.copy()
        new[list(changed)] ^= 1
        for mode in MODES:
            coded = encode(old.view(np.uint8), new.view(np.uint8), form, mode)
            decode(old.view(np.uint8), coded, form, np.empty(old.nbytes, np.uint8))


def encode(base: Bytes, new: Bytes, form: WordFormat, mode: Mode = "small", using: Loops | None = None) -> bytes:
    """Encode `new` against `base`: flat bytes of equal length, whole words, at most `block.MAX_WORDS` of them."""
    assert base.shape == new.shape and base.ndim == 1 and base.size % form.size == 0
    old, fresh = base.view(form.words), new.view(form.words)
    assert old.size <= block.MAX_WORDS
    loop = using or loops()
    if mode == "fast" and form.mask:
        coded = loop.encode_bitmap(old, fresh, form, lambda changed: _threshold(old, changed, form))
        sparse, changed = block.pack_bitmap(old.size, form, coded), coded.changed
    else:
        if loop is not numpy_loops and (smallest := _ranged(old, fresh, form)) is not None:
            return smallest
        used, kind = (form, block.ORDERED) if form.mask else (block.plain(form), block.PLAIN)
        streams = loop.split(old, fresh, used)
        sparse, changed = block.pack_sparse(kind, old.size, form, streams), streams.changed
    if changed <= _TRY_DENSE * old.size:
        return sparse
    dense = block.pack_dense(old, fresh, form)
    return min(sparse, dense, key=len)


def decode(base: Bytes, payload: bytes | memoryview, form: WordFormat, out: Bytes, using: Loops | None = None) -> None:
    """Inverse of `encode`, into `out`, which shares no memory with `base`.

    Raises CorruptPayload when `payload` is invalid for these words; `out` is then undefined.
    """
    old, fresh = base.view(form.words), out.view(form.words)
    kind, content = block.unpack(memoryview(payload), old.size, form)
    loop = using or loops()
    if isinstance(content, BitmapBlock):
        loop.decode_bitmap(old, content, form, fresh)
    elif isinstance(content, block.RangedBlock):
        ranged.decode(old, content.data, form, content.changed, fresh)
    elif isinstance(content, Streams):
        loop.join(old, content, form if kind == block.ORDERED else block.plain(form), fresh)
    else:
        np.bitwise_xor(base, content, out=out)


def _ranged(old: Words, fresh: Words, form: WordFormat) -> bytes | None:
    if not (ranged.IS_COMPILED and ranged.fits(form)):
        return None
    changed = int(np.count_nonzero(old != fresh))
    if changed > ranged.MAX_CHANGED * old.size or (data := ranged.encode(old, fresh, form, changed)) is None:
        return None
    return block.pack_ranged(old.size, form, block.RangedBlock(changed, data))


def _threshold(words: Words, changed: npt.NDArray[np.int64], form: WordFormat) -> int:
    """The context below which words are told apart: the largest of those that often change; 0 for none.

    How many words a context has is taken from a sample, the same on every machine.
    """
    runs = max(1, min(_RUNS, words.size // _RUN))
    starts = np.linspace(0, max(0, words.size - _RUN), runs).astype(np.int64)
    sample = np.concatenate([words[start : start + _RUN] for start in starts.tolist()])
    share = np.bincount((sample >> form.shift) & form.mask, minlength=form.mask + 1) / max(1, sample.size)
    few = (share > 0) & (np.cumsum(share) <= _MAX_FLAGGED)
    crowded = np.flatnonzero(few & (changed > 0) & (changed >= _CROWDED * share * words.size))
    return int(crowded[-1]) + 1 if crowded.size else 0
