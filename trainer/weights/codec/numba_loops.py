"""The loops compiled by numba: one pass over the words, no sorting. Import fails where numba is not installed.

A counter a context stands in for the sort: the rank of a word inside its bucket is how often its context was seen.
Indices are unsigned throughout: a signed one costs a test for numpy's counting from the end, several times the work.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

from trainer.weights.codec.streams import CHANGED, CONTEXT, ESCAPE, GAPS, WIDE, Streams, outside, starts
from trainer.weights.codec.words import WordFormat, Words

compiled: Final[Any] = numba.njit(cache=True, nogil=True, boundscheck=False)
# Ordinary calls, not decorators: numba has no types, and these names keep theirs.
STRETCH = np.uint64(1 << 12)
"""Eights of bytes that are copied at a time."""
NONE, ONE, ESCAPED, NEVER = np.uint64(0), np.uint64(1), np.uint64(ESCAPE), np.uint64(1 << 62)


def split(base: Words, new: Words, form: WordFormat) -> Streams:
    where = where_changed(base, new, form)
    changed = where.size
    # Sized by what changed: the kernel may clear large pages for room that is never used.
    gaps = np.empty(changed + base.size // ESCAPE + form.mask + 1, np.uint8)
    steps, wide = np.empty(changed, np.uint8), np.empty(changed, form.words)
    if form.mask == 0:
        gap_bytes, wides = _emit_plain(base, new, np.uint64(8 * form.size), where, gaps, steps, wide)
        table = np.array([[0, changed, gap_bytes, wides]] if changed else [], np.uint32).reshape(-1, 4)
    else:
        gap_of = np.empty(changed, np.uint64)
        sizes_of = np.zeros((form.mask + 1, 3), np.uint64)
        _measure(base, new, *_bits(form), where, gap_of, sizes_of)
        used = np.flatnonzero(sizes_of[:, 0])
        table = np.column_stack([used, sizes_of[used]]).astype(np.uint32)
        ends = np.column_stack([starts(sizes_of[:, column]) for column in range(3)]).astype(np.uint64)
        gap_bytes, wides = int(ends[-1, 1]), int(ends[-1, 2])
        _emit(base, new, *_bits(form), where, gap_of, ends, gaps, steps, wide)
    return Streams(table, gaps[:gap_bytes], steps, wide[:wides])


def where_changed(base: Words, new: Words, form: WordFormat) -> npt.NDArray[np.uint64]:
    """Positions of the changed words."""
    lanes = 8 // form.size
    eight_old, eight_new = eights(base), eights(new)
    where = np.empty(base.size // 16 + 16, np.uint64)
    changed = _positions(base, new, eight_old, eight_new, np.uint64(lanes), where)
    if changed < 0:
        where = np.empty(np.count_nonzero(base != new) + 16, np.uint64)
        changed = _positions(base, new, eight_old, eight_new, np.uint64(lanes), where)
    return where[:changed]


def join(base: Words, streams: Streams, form: WordFormat, out: Words) -> None:
    if form.mask == 0 or not streams.changed:
        lanes = np.uint64(8 // form.size)
        if not _join_plain(base, out, eights(base), eights(out), lanes, streams.gaps, streams.steps, streams.wide):
            raise outside()
        return
    cursors = np.zeros((form.mask + 1, 4), np.uint64)  # gaps, steps, wide, changed words still to come
    contexts = streams.table[:, CONTEXT]
    for column, source in enumerate((GAPS, CHANGED, WIDE)):
        cursors[contexts, column] = starts(streams.table[:, source])[:-1]
    cursors[contexts, 3] = streams.table[:, CHANGED]
    shift, mask, _ = _bits(form)
    if not _join_buckets(base, shift, mask, streams.gaps, streams.steps, streams.wide, cursors, out):
        raise outside()


def eights(words: Words) -> npt.NDArray[np.uint64]:
    """As many whole eights of bytes as there are."""
    whole = words.nbytes // 8
    return words[: whole * 8 // words.itemsize].view("<u8")


def _bits(form: WordFormat) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Shift and mask of the context, bits of a word."""
    return np.uint64(form.shift), np.uint64(form.mask), np.uint64(8 * form.size)


def _zigzag_(old: Any, new: Any, bits: Any) -> Any:
    """Zigzag code of the difference modulo the word."""
    full = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - bits)
    difference = (np.uint64(new) - np.uint64(old)) & full
    return ((difference << ONE) & full) ^ (full * (difference >> (bits - ONE)))


def _stepped_(old: Any, zigzag: Any) -> Any:
    code = np.uint64(zigzag)
    return np.uint64(old) + ((code >> ONE) ^ (NONE - (code & ONE)))


def _put_gap_(gaps: Any, at: Any, gap: Any) -> Any:
    while gap >= ESCAPED:
        gaps[at] = ESCAPED
        at += ONE
        gap -= ESCAPED
    gaps[at] = gap
    return at + ONE


zigzag_of = compiled(_zigzag_)
stepped = compiled(_stepped_)
put_gap = compiled(_put_gap_)


def _positions_(base: Any, new: Any, eight_old: Any, eight_new: Any, lanes: Any, where: Any) -> Any:
    """Where words differ, ascending; returns how many, or -1 when `where` is too small (it needs eight to spare).

    Looks at eight bytes at a time, since most of them have not changed, and writes without a branch where some have.
    """
    changed = NONE
    room = np.uint64(where.size - 8)
    blocks = np.uint64(eight_old.size)
    for block in range(blocks):
        if eight_old[block] != eight_new[block]:
            if changed > room:
                return -1
            first = block * lanes
            for lane in range(lanes):
                where[changed] = first + lane
                changed += np.uint64(base[first + lane] != new[first + lane])
    if changed > room:
        return -1
    for at in range(blocks * lanes, np.uint64(base.size)):
        where[changed] = at
        changed += np.uint64(base[at] != new[at])
    return np.int64(changed)


def _emit_plain_(base: Any, new: Any, bits: Any, where: Any, gaps: Any, steps: Any, wide: Any) -> Any:
    """Gap bytes, wide words."""
    after = gap_bytes = wides = NONE
    for index in range(np.uint64(where.size)):
        at = where[index]
        gap_bytes = put_gap(gaps, gap_bytes, at - after)
        after = at + ONE
        zigzag = zigzag_of(base[at], new[at], bits)
        if zigzag >= ESCAPED:
            steps[index] = ESCAPED
            wide[wides] = new[at]
            wides += ONE
        else:
            steps[index] = zigzag
    return np.int64(gap_bytes), np.int64(wides)


def _measure_(base: Any, new: Any, shift: Any, mask: Any, bits: Any, where: Any, gap_of: Any, sizes_of: Any) -> None:
    """The gap before each changed word in its bucket, and changed words, gap bytes and wide words a bucket."""
    since = np.zeros(mask + ONE, np.uint64)
    at = NONE
    for index in range(np.uint64(where.size)):
        for word in range(at, where[index]):
            since[(np.uint64(base[word]) >> shift) & mask] += ONE
        at = where[index]
        context = (np.uint64(base[at]) >> shift) & mask
        gap_of[index] = since[context]
        sizes_of[context, 0] += ONE
        sizes_of[context, 1] += since[context] // ESCAPED + ONE
        if zigzag_of(base[at], new[at], bits) >= ESCAPED:
            sizes_of[context, 2] += ONE
        since[context] = NONE
        at += ONE


def _emit_(
    base: Any,
    new: Any,
    shift: Any,
    mask: Any,
    bits: Any,
    where: Any,
    gap_of: Any,
    ends: Any,
    gaps: Any,
    steps: Any,
    wide: Any,
) -> None:
    """Puts each changed word into the streams of its bucket; `ends` [contexts + 1, 3] says where those begin."""
    for index in range(np.uint64(where.size)):
        at = where[index]
        context = (np.uint64(base[at]) >> shift) & mask
        ends[context, 1] = put_gap(gaps, ends[context, 1], gap_of[index])
        zigzag = zigzag_of(base[at], new[at], bits)
        if zigzag >= ESCAPED:
            steps[ends[context, 0]] = ESCAPED
            wide[ends[context, 2]] = new[at]
            ends[context, 2] += ONE
        else:
            steps[ends[context, 0]] = zigzag
        ends[context, 0] += ONE


def _join_plain_(
    base: Any, out: Any, eight_old: Any, eight_out: Any, lanes: Any, gaps: Any, steps: Any, wide: Any
) -> Any:
    """Copies and patches stretch by stretch, so that a stretch is still in the cache when it is patched."""
    at = changed = wides = copied = NONE
    count = np.uint64(base.size)
    for word in range(np.uint64(eight_old.size) * lanes, count):
        out[word] = base[word]
    for index in range(np.uint64(gaps.size)):
        gap = np.uint64(gaps[index])
        at += gap
        if gap == ESCAPED:
            continue
        if at >= count:
            return False
        if at >= copied * lanes:
            copied = _copy(eight_old, eight_out, copied, at // lanes + STRETCH)
        if steps[changed] == ESCAPED:
            out[at] = wide[wides]
            wides += ONE
        else:
            out[at] = stepped(base[at], steps[changed])
        changed += ONE
        at += ONE
    _copy(eight_old, eight_out, copied, np.uint64(eight_old.size))
    return True


def _copy_(old: Any, out: Any, first: Any, end: Any) -> Any:
    end = min(end, np.uint64(old.size))
    for index in range(first, end):
        out[index] = old[index]
    return end


def _join_buckets_(base: Any, shift: Any, mask: Any, gaps: Any, steps: Any, wide: Any, cursors: Any, out: Any) -> Any:
    """Walks the words in memory order; each context counts down to its next change."""
    left = np.full(mask + ONE, NEVER)
    for context in range(mask + ONE):
        if cursors[context, 3]:
            left[context] = _next_gap(gaps, cursors, context)
    for at in range(np.uint64(base.size)):
        old = base[at]
        context = (np.uint64(old) >> shift) & mask
        if left[context]:
            left[context] -= ONE
            out[at] = old
            continue
        zigzag = steps[cursors[context, 1]]
        cursors[context, 1] += ONE
        if zigzag == ESCAPED:
            out[at] = wide[cursors[context, 2]]
            cursors[context, 2] += ONE
        else:
            out[at] = stepped(old, zigzag)
        cursors[context, 3] -= ONE
        left[context] = _next_gap(gaps, cursors, context) if cursors[context, 3] else NEVER
    return cursors[:, 3].sum() == 0


def _next_gap_(gaps: Any, cursors: Any, context: Any) -> Any:
    gap = NONE
    at = cursors[context, 0]
    while gaps[at] == ESCAPED:
        gap += ESCAPED
        at += ONE
    gap += np.uint64(gaps[at])
    cursors[context, 0] = at + ONE
    return gap


_next_gap = compiled(_next_gap_)
_positions = compiled(_positions_)
_emit_plain = compiled(_emit_plain_)
_measure = compiled(_measure_)
_emit = compiled(_emit_)
_copy = compiled(_copy_)
_join_plain = compiled(_join_plain_)
_join_buckets = compiled(_join_buckets_)
