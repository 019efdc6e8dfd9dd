"""One coded block: a header, then zstd frames. Every length is checked before anything is allocated or read.

header   kind (0 dense, 1 plain order, 2 ordered by context, 3 bitmap-coded, 4 ranged), word size, words, length of each frame
dense    one frame: XOR of the raw words, split into byte planes
sparse   five frames: table, gaps, bitmaps, steps, wide (`streams`, `bitmaps`)
bitmap   five frames: head, gaps, bits, steps, wide (`streams.BitmapBlock`)
ranged   one frame, and no zstd: changed words, then the bytes of a range coder (`ranged`)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import zstandard

from trainer.errors import CorruptPayload
from trainer.weights.codec import bitmaps, ranged
from trainer.weights.codec.streams import BitmapBlock, Streams
from trainer.weights.codec.words import Bytes, WordFormat, Words

DENSE, PLAIN, ORDERED, BITMAP, RANGED = range(5)
HEADER = struct.Struct("<BBI")
LENGTH = struct.Struct("<I")
# Level 1: 3 and 9 gain nothing on real deltas and cost 3-10 times the time. Matches only where seven bytes repeat: the
# streams are nearly random, and shorter matches cost more than the entropy coder needs for the same bytes.
_PARAMETERS = zstandard.ZstdCompressionParameters.from_level(1, min_match=7)
MAX_WORDS = 1 << 26
_EMPTY = b""


class RangedBlock(NamedTuple):
    changed: int
    data: Bytes


def pack_ranged(words: int, form: WordFormat, coded: RangedBlock) -> bytes:
    frame = LENGTH.pack(coded.changed) + coded.data.tobytes()
    return HEADER.pack(RANGED, form.size, words) + LENGTH.pack(len(frame)) + frame


def pack_sparse(kind: int, words: int, form: WordFormat, streams: Streams) -> bytes:
    table, gaps, crowded = bitmaps.take(streams)
    parts = (table, gaps, crowded, streams.steps, streams.wide)
    return _pack(kind, words, form, [part.data.cast("B") if part.size else _EMPTY for part in parts])


def pack_dense(base: Words, new: Words, form: WordFormat) -> bytes:
    difference = np.bitwise_xor(base, new).view(np.uint8)
    planes = np.ascontiguousarray(difference.reshape(-1, form.size).T)
    return _pack(DENSE, base.size, form, [planes.data.cast("B") if planes.size else _EMPTY])


def unpack(
    payload: memoryview, words: int, form: WordFormat
) -> tuple[int, Bytes | Streams | BitmapBlock | RangedBlock]:
    """Kind of the block, and the XOR of the words (dense), checked streams, or coded decisions. Raises CorruptPayload."""
    if len(payload) < HEADER.size:
        raise CorruptPayload(f"a block of {len(payload)} bytes has no header")
    kind, size, count = HEADER.unpack_from(payload)
    if kind > RANGED or size != form.size or count != words:
        raise CorruptPayload(f"a block of {count} words of {size} bytes stands where {words} of {form.size} belong")
    if (kind in (ORDERED, BITMAP) and form.mask == 0) or (kind == RANGED and not ranged.fits(form)):
        raise CorruptPayload("a block is ordered by context, and its words have none")
    if kind == DENSE:
        (frame,) = _frames(payload, 1)
        return kind, _decompress(frame, words * size, exact=True).reshape(size, -1).T.reshape(-1)
    if kind == RANGED:
        (frame,) = _frames(payload, 1)
        if len(frame) < LENGTH.size:
            raise CorruptPayload("a ranged block does not say how many words it changes")
        # Bytes of our own: loops compile once for what may be written to, and once for what may not.
        return kind, RangedBlock(LENGTH.unpack_from(frame)[0], np.frombuffer(bytes(frame[LENGTH.size :]), np.uint8))
    frames = _frames(payload, 5)
    if kind == BITMAP:
        return kind, _bitmap(frames, words, form)
    contexts = form if kind == ORDERED else plain(form)
    buckets = contexts.mask + 1
    table, gaps = bitmaps.put_back(
        _decompress(frames[0], 16 * buckets, unit=16).view("<u4").reshape(-1, 4),
        _decompress(frames[1], words + words // 255 + buckets),
        _decompress(frames[2], words // 8 + buckets),
    )
    steps, wide = _decompress(frames[3], words), _decompress(frames[4], words * size, unit=size).view(form.words)
    streams = Streams(table, gaps, steps, wide)
    streams.check(words, contexts)
    return kind, streams


def pack_bitmap(words: int, form: WordFormat, coded: BitmapBlock) -> bytes:
    parts = (coded.head(), coded.gaps, coded.bits, coded.steps, coded.wide)
    return _pack(BITMAP, words, form, [part.data.cast("B") if part.size else _EMPTY for part in parts])


def _bitmap(frames: Sequence[memoryview], words: int, form: WordFormat) -> BitmapBlock:
    """Raises CorruptPayload."""
    threshold, flagged, wide_flagged, _ = _decompress(frames[0], 16, exact=True).view("<u4").tolist()
    gaps, bits = _decompress(frames[1], words + words // 255 + 1), _decompress(frames[2], words // 8 + 1)
    steps, wide = (
        _decompress(frames[3], words),
        _decompress(frames[4], words * form.size, unit=form.size).view(form.words),
    )
    coded = BitmapBlock(threshold, flagged, wide_flagged, bits, gaps, steps, wide)
    coded.check(form)
    return coded


def plain(form: WordFormat) -> WordFormat:
    """The same words without their contexts."""
    return WordFormat(form.size)


def _pack(kind: int, words: int, form: WordFormat, parts: Sequence[memoryview | bytes]) -> bytes:
    compressor = zstandard.ZstdCompressor(compression_params=_PARAMETERS)
    frames = [compressor.compress(part) if len(part) else _EMPTY for part in parts]
    lengths = b"".join(LENGTH.pack(len(frame)) for frame in frames)
    return b"".join([HEADER.pack(kind, form.size, words), lengths, *frames])


def _frames(payload: memoryview, count: int) -> list[memoryview]:
    at = HEADER.size + count * LENGTH.size
    if len(payload) < at:
        raise CorruptPayload("a block ends inside its header")
    frames = []
    for index in range(count):
        (length,) = LENGTH.unpack_from(payload, HEADER.size + index * LENGTH.size)
        frames.append(payload[at : at + length])
        at += length
    if at != len(payload):
        raise CorruptPayload(f"a block has {len(payload)} bytes and its header speaks of {at}")
    return frames


def _decompress(frame: memoryview, limit: int, *, unit: int = 1, exact: bool = False) -> Bytes:
    if not len(frame):
        size, data = 0, _EMPTY
    else:
        try:
            size = zstandard.frame_content_size(frame)
            if not 0 <= size <= limit:  # looked at first, so that a forged frame cannot make us allocate
                raise CorruptPayload(f"a frame promises {size} bytes where {limit} are the most there can be")
            data = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise CorruptPayload(f"a frame does not decompress: {error}") from error
    if len(data) != size or size % unit or (exact and size != limit):
        raise CorruptPayload(f"a frame holds {len(data)} bytes where {limit} belong")
    return np.frombuffer(data, np.uint8)
