"""What a sparse delta consists of, before compression: the same streams whichever loops made them.

Changed words come bucket by bucket (a bucket: the words of one context, in memory order), ascending by context.

table   uint32 × 4 a bucket with changes: context, changed words, gap bytes, wide words
gaps    uint8: unchanged words of the bucket since its last changed one; 255 stands for "255 more, go on"
steps   uint8: difference of the raw word to the old one, as zigzag; 255 refers to `wide`
wide    the new word itself, where the difference does not fit
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trainer.errors import CorruptPayload
from trainer.weights.codec.words import Bytes, WordFormat, Words

ESCAPE = 255

Table = npt.NDArray[np.uint32]
CONTEXT, CHANGED, GAPS, WIDE = range(4)
"""Columns of the table."""


@dataclass(frozen=True)
class Streams:
    table: Table
    """[buckets, 4]"""
    gaps: Bytes
    steps: Bytes
    wide: Words

    @property
    def changed(self) -> int:
        return self.steps.size

    def check(self, words: int, form: WordFormat) -> None:
        """Raises CorruptPayload unless the sizes agree with one another; positions are checked by the loops."""
        sums = self.table.sum(axis=0, dtype=np.int64)
        sizes = (self.steps.size, self.gaps.size, self.wide.size)
        if tuple(sums[CHANGED:].tolist()) != sizes or self.steps.size > words or (self.table[:, CHANGED] == 0).any():
            raise CorruptPayload(f"table of a delta promises {sums[CHANGED:].tolist()}, its streams hold {sizes}")
        contexts = self.table[:, CONTEXT].astype(np.int64)
        if contexts.size and ((np.diff(contexts) <= 0).any() or contexts[-1] > form.mask):
            raise CorruptPayload("table of a delta names contexts that are out of order or unknown")
        gap_ends, step_ends = starts(self.table[:, GAPS]), starts(self.table[:, CHANGED])
        for bucket, (_, changed, gaps, wide) in enumerate(self.table.tolist()):
            mine = self.gaps[gap_ends[bucket] : gap_ends[bucket + 1]]
            steps = self.steps[step_ends[bucket] : step_ends[bucket + 1]]
            whole = gaps > 0 and mine[-1] != ESCAPE and np.count_nonzero(mine != ESCAPE) == changed
            if not whole or np.count_nonzero(steps == ESCAPE) != wide:
                raise CorruptPayload("streams of a delta do not hold what their table promises")


@dataclass(frozen=True)
class BitmapBlock:
    """A bitmap-coded block: words whose context is below `threshold` have a bit each, all others are coded by gaps.

    Steps and wide words are those of the words with a bit, then those of the others.
    """

    threshold: int
    flagged: int
    """Changed words among those with a bit."""
    wide_flagged: int
    bits: Bytes
    """A bit for every word below the threshold, set where it has changed; the first word has the top bit of the first byte."""
    gaps: Bytes
    """Words of any context between changed words that have no bit."""
    steps: Bytes
    wide: Words

    @property
    def changed(self) -> int:
        return self.steps.size

    def head(self) -> Table:
        return np.array([self.threshold, self.flagged, self.wide_flagged, 0], np.uint32)

    def check(self, form: WordFormat) -> None:
        """Raises CorruptPayload unless the sizes agree with one another; positions are checked by the loops."""
        others = self.steps.size - self.flagged
        ends = not self.gaps.size or self.gaps[-1] != ESCAPE
        if self.threshold > form.mask + 1 or others != np.count_nonzero(self.gaps != ESCAPE) or not ends:
            raise CorruptPayload("a bitmap-coded delta has other gaps than its head promises")
        if self.flagged > self.steps.size or int(np.bitwise_count(self.bits).sum(dtype=np.int64)) != self.flagged:
            raise CorruptPayload("a bitmap-coded delta has other bits than its head promises")
        wide = [np.count_nonzero(part == ESCAPE) for part in (self.steps[: self.flagged], self.steps[self.flagged :])]
        if wide != [self.wide_flagged, self.wide.size - self.wide_flagged]:
            raise CorruptPayload("a bitmap-coded delta has other wide words than its head promises")


Pick = Callable[[npt.NDArray[np.int64]], int]
"""The context below which words are counted as bits, from the changed words by context: [mask + 1]."""


class Loops(Protocol):
    """One implementation of the work on words; all of them make and read the same streams."""

    def split(self, base: Words, new: Words, form: WordFormat) -> Streams: ...

    def encode_bitmap(self, base: Words, new: Words, form: WordFormat, pick: Pick) -> BitmapBlock: ...

    def decode_bitmap(self, base: Words, coded: BitmapBlock, form: WordFormat, out: Words) -> None:
        """Inverse of `encode_bitmap`, as `join` is of `split`."""
        ...

    def join(self, base: Words, streams: Streams, form: WordFormat, out: Words) -> None:
        """Writes the new words to `out`, which shares no memory with `base`. `streams` have been checked.

        Raises CorruptPayload when a position lies outside its bucket; `out` is of no use then.
        """
        ...


def outside() -> CorruptPayload:
    return CorruptPayload("a delta changes words past the end of its tensors")


def starts(counts: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Where each of consecutive runs begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
