"""Bitmap-coded buckets: positions as bits instead of gaps, which is shorter where at least one word in twelve has
changed.

Used on the wire only; the loops use gaps. A flag in the context of a bucket's row marks it, and its bitmap bytes count
as gaps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.errors import CorruptPayload
from trainer.weights.codec.streams import CHANGED, CONTEXT, ESCAPE, GAPS, Streams, Table, starts
from trainer.weights.codec.words import Bytes

_FLAG = 1 << 31
_CROWDED = 12
"""A bucket is crowded when it has fewer than this many words for each changed one (measured: 8 to 16 are alike)."""


def take(streams: Streams) -> tuple[Table, Bytes, Bytes]:
    """Table, gaps of the other buckets, bitmaps of the crowded ones."""
    table = streams.table.copy()
    ends = starts(table[:, GAPS])
    gaps, bitmaps = [], []
    for row, first, last in zip(table, ends, ends[1:], strict=False):
        mine = streams.gaps[first:last]
        reach = int(mine.sum(dtype=np.int64)) + int(row[CHANGED])
        if reach >= _CROWDED * int(row[CHANGED]):
            gaps.append(mine)
            continue
        bits = np.zeros(reach, np.uint8)
        bits[ranks_of(mine)] = 1
        bitmaps.append(np.packbits(bits))
        row[CONTEXT] |= _FLAG
        row[GAPS] = bitmaps[-1].size
    return table, _joined(gaps), _joined(bitmaps)


def put_back(table: Table, gaps: Bytes, bitmaps: Bytes) -> tuple[Table, Bytes]:
    """Inverse of `take`. Raises CorruptPayload."""
    crowded = table[:, CONTEXT] >= _FLAG
    if not crowded.any():
        if bitmaps.size:
            raise CorruptPayload("a delta has bitmaps that no bucket asks for")
        return table, gaps
    table = table.copy()
    table[:, CONTEXT] &= _FLAG - 1
    sizes = table[:, GAPS].astype(np.int64)
    if sizes[crowded].sum() != bitmaps.size or sizes[~crowded].sum() != gaps.size:
        raise CorruptPayload("gaps and bitmaps of a delta are not as long as its table says")
    taken = {True: 0, False: 0}
    parts = []
    for row, is_crowded, size in zip(table, crowded.tolist(), sizes.tolist(), strict=True):
        first = taken[is_crowded]
        taken[is_crowded] += size
        mine = (bitmaps if is_crowded else gaps)[first : first + size]
        parts.append(gap_bytes(np.flatnonzero(np.unpackbits(mine))) if is_crowded else mine)
        row[GAPS] = parts[-1].size
    return table, _joined(parts)


def gap_bytes(ranks: npt.NDArray[np.integer]) -> Bytes:
    """The gap code of ascending positions."""
    gaps = np.diff(ranks, prepend=-1) - 1
    escapes = gaps // ESCAPE
    coded = np.full(gaps.size + int(escapes.sum()), ESCAPE, np.uint8)
    coded[np.cumsum(escapes + 1) - 1] = gaps - escapes * ESCAPE
    return coded


def ranks_of(gaps: Bytes) -> npt.NDArray[np.int64]:
    """Inverse of `gap_bytes`."""
    sums = np.cumsum(gaps, dtype=np.int64)[gaps != ESCAPE]
    return sums + np.arange(sums.size)


def _joined(parts: list[Bytes]) -> Bytes:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)
