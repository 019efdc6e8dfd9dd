"""The loops in numpy: always there, and what the compiled ones are compared with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from trainer.weights.codec.bitmaps import gap_bytes, ranks_of
from trainer.weights.codec.streams import CHANGED, CONTEXT, ESCAPE, GAPS, BitmapBlock, Pick, Streams, outside, starts
from trainer.weights.codec.words import Bytes, WordFormat, Words

Positions = npt.NDArray[np.integer]


def split(base: Words, new: Words, form: WordFormat) -> Streams:
    table, gaps, where = [], [], []
    differs = base != new
    for context, bucket in _buckets(base, form, np.flatnonzero(differs)):
        ranks = np.flatnonzero(differs if bucket is None else differs[bucket])
        positions = ranks if bucket is None else bucket[ranks]
        gaps.append(gap_bytes(ranks))
        where.append(positions)
        table.append((context, ranks.size, gaps[-1].size, 0))
    rows = np.array(table, np.uint32).reshape(-1, 4)
    changed = np.concatenate(where) if where else np.zeros(0, np.int64)
    steps, wide = _steps(base[changed], new[changed], form)
    ends = starts(rows[:, CHANGED])
    for row, first, last in zip(rows, ends, ends[1:], strict=False):
        row[3] = np.count_nonzero(steps[first:last] == ESCAPE)
    return Streams(rows, np.concatenate(gaps) if gaps else np.zeros(0, np.uint8), steps, wide)


def join(base: Words, streams: Streams, form: WordFormat, out: Words) -> None:
    np.copyto(out, base)
    if not streams.changed:
        return
    contexts = streams.table[:, CONTEXT]
    gap_ends = starts(streams.table[:, GAPS])
    where = []
    for row, (_, bucket) in enumerate(_buckets(base, form, None, contexts)):
        ranks = ranks_of(streams.gaps[gap_ends[row] : gap_ends[row + 1]])
        if ranks[-1] >= (base.size if bucket is None else bucket.size):
            raise outside()
        where.append(ranks if bucket is None else bucket[ranks])
    _overwrite(base, np.concatenate(where), streams.steps, streams.wide, form, out)


def _overwrite(base: Words, changed: Positions, steps: Bytes, wide: Words, form: WordFormat, out: Words) -> None:
    zigzag = steps.astype(form.words)
    step = (zigzag >> 1) ^ (-(zigzag & 1).astype(form.words)).astype(form.words)
    words = base[changed] + step
    words[steps == ESCAPE] = wide
    out[changed] = words


def encode_bitmap(base: Words, new: Words, form: WordFormat, pick: Pick) -> BitmapBlock:
    differs, context = base != new, _context(base, form)
    threshold = pick(np.bincount(context[differs], minlength=form.mask + 1))
    flagged = context < threshold
    first, rest = np.flatnonzero(differs & flagged), np.flatnonzero(differs & ~flagged)
    (steps, wide), (rest_steps, rest_wide) = (_steps(base[where], new[where], form) for where in (first, rest))
    return BitmapBlock(
        threshold,
        first.size,
        wide.size,
        np.packbits(differs[flagged]),
        gap_bytes(rest),
        np.concatenate([steps, rest_steps]),
        np.concatenate([wide, rest_wide]),
    )


def decode_bitmap(base: Words, coded: BitmapBlock, form: WordFormat, out: Words) -> None:
    np.copyto(out, base)
    flagged = np.flatnonzero(_context(base, form) < coded.threshold)
    flags = np.unpackbits(coded.bits)
    if coded.bits.size != -(-flagged.size // 8) or flags[flagged.size :].any():
        raise outside()
    rest = ranks_of(coded.gaps)
    if rest.size and rest[-1] >= base.size:
        raise outside()
    cut, wide_cut = coded.flagged, coded.wide_flagged
    first = flagged[flags[: flagged.size] > 0]
    _overwrite(base, first, coded.steps[:cut], coded.wide[:wide_cut], form, out)
    _overwrite(base, rest, coded.steps[cut:], coded.wide[wide_cut:], form, out)


def _buckets(
    base: Words, form: WordFormat, changed: Positions | None, contexts: npt.NDArray[np.uint32] | None = None
) -> Iterator[tuple[int, Positions | None]]:
    """Context and positions of each bucket that counts: of the changed words, or the named ones. None: every word."""
    if form.mask == 0:
        if contexts is not None or (changed is not None and changed.size):
            yield 0, None
        return
    of_word = _context(base, form)
    wanted = np.unique(of_word[changed]) if changed is not None else contexts
    assert wanted is not None
    for context in wanted.tolist():
        yield context, np.flatnonzero(of_word == context)


def _context(words: Words, form: WordFormat) -> npt.NDArray[np.unsignedinteger]:
    narrow = np.uint8 if form.mask <= 0xFF else np.uint16
    return ((words >> form.shift) & form.mask).astype(narrow)


def _steps(old: Words, new: Words, form: WordFormat) -> tuple[Bytes, Words]:
    """Differences modulo the word, so that every pattern has one: the numeric sense of a word is of no matter."""
    difference = (new - old).view(f"<i{form.size}")
    zigzag = ((difference << 1) ^ (difference >> (8 * form.size - 1))).view(form.words)
    is_wide = zigzag >= ESCAPE
    steps = np.where(is_wide, np.asarray(ESCAPE, form.words), zigzag).astype(np.uint8)
    return steps, new[is_wide]
