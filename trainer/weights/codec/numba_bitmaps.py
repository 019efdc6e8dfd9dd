"""Compiled loops for bitmap-coded blocks (`Loops.encode_bitmap`, `decode_bitmap`). Import fails without numba.

Few words lie below the threshold, so eight bytes are tested at once: with the context's bits alone in each lane, adding
what is missing from the threshold to the lane's top bit sets that bit exactly where the context reaches it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.weights.codec.numba_loops import (
    ESCAPED,
    NONE,
    ONE,
    compiled,
    eights,
    put_gap,
    stepped,
    where_changed,
    zigzag_of,
)
from trainer.weights.codec.streams import ESCAPE, BitmapBlock, Pick, outside
from trainer.weights.codec.words import WordFormat, Words

STRETCH = np.uint64(1 << 10)
"""Groups of eight eights that are copied at a time, so that they are in the cache when they are changed."""
GROUP, BYTE = np.uint64(8), np.uint64(3)


def encode_bitmap(base: Words, new: Words, form: WordFormat, pick: Pick) -> BitmapBlock:
    where = where_changed(base, new, form)
    changed = where.size
    # Old and new words are read from far away once; everything after that is on few words.
    pairs, counts = np.empty((changed, 2), form.words), np.zeros(form.mask + 1, np.int64)
    shift, mask = np.uint64(form.shift), np.uint64(form.mask)
    _read(base, new, shift, mask, where, pairs, counts)
    threshold = pick(counts)
    lanes = _lanes(form, threshold)
    flagged = int(counts[:threshold].sum())
    first, gaps = np.empty(flagged, np.uint64), np.empty(changed - flagged + base.size // ESCAPE + 1, np.uint8)
    steps, wide, wide_first = np.empty(changed, np.uint8), np.empty(changed, form.words), np.empty(flagged, form.words)
    gap_bytes, wides, wide_flagged = map(
        int,
        _emit_bitmap(
            pairs,
            shift,
            mask,
            np.uint64(threshold),
            lanes[0],
            where,
            np.uint64(flagged),
            first,
            gaps,
            steps,
            wide,
            wide_first,
        ),
    )
    bits = np.empty(base.size // 8 + 2 if threshold else 0, np.uint8)
    seen = int(_mark(base, eights(base), *lanes, first, bits)) if threshold else 0
    wide = np.concatenate([wide_first[:wide_flagged], wide[:wides]]) if wide_flagged else wide[:wides]
    return BitmapBlock(threshold, flagged, wide_flagged, bits[: -(-seen // 8)], gaps[:gap_bytes], steps, wide)


def decode_bitmap(base: Words, coded: BitmapBlock, form: WordFormat, out: Words) -> None:
    cut, wide_cut = coded.flagged, coded.wide_flagged
    whole = _decode_bitmap(
        base,
        out,
        eights(base),
        eights(out),
        *_lanes(form, coded.threshold),
        coded.bits,
        coded.steps[:cut],
        coded.wide[:wide_cut],
        coded.gaps,
        coded.steps[cut:],
        coded.wide[wide_cut:],
    )
    if not whole:
        raise outside()


def _lanes(form: WordFormat, threshold: int) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]:
    """Bits of a word, and in every lane of eight bytes: the context, what to add, the top bit. Then lanes."""
    bits = 8 * form.size
    ones = sum(1 << (bits * lane) for lane in range(64 // bits))
    top = 1 << (bits - 1)
    assert form.mask << form.shift < top and threshold << form.shift <= top
    return (
        np.uint64(bits),
        np.uint64(ones * (form.mask << form.shift)),
        np.uint64(ones * (top - (threshold << form.shift))),
        np.uint64(ones * top),
        np.uint64(64 // bits),
    )


def _flagged_(word: Any, field: Any, add: Any, top: Any) -> Any:
    """Whether a word, alone in the lowest lane, lies below the threshold."""
    full = top & (NONE - top)  # the lowest lane's top bit
    return ((np.uint64(word) & field) + add) & full == NONE


_flagged = compiled(_flagged_)


def _mark_(base: Any, eight: Any, bits: Any, field: Any, add: Any, top: Any, lanes: Any, where: Any, flags: Any) -> Any:
    """A bit for each word below the threshold, set for those at `where`; returns how many bits.

    Reads no new words: a branch on memory that is far away would cost more than all the rest.
    """
    seen = following = NONE
    shift = bits - ONE
    groups = np.uint64(eight.size) // GROUP
    size, changed = np.uint64(base.size), np.uint64(where.size)
    awaited = where[0] if changed else size
    for group in range(groups):
        reached = top
        for index in range(group * GROUP, group * GROUP + GROUP):
            reached &= (eight[index] & field) + add
        if reached == top:
            continue
        for index in range(group * GROUP, group * GROUP + GROUP):
            found = (~((eight[index] & field) + add) & top) >> shift
            word = index * lanes
            while found:
                if found & ONE:
                    hit = word == awaited
                    _flag(flags, seen, hit)
                    seen += ONE
                    if hit:
                        following += ONE
                        awaited = where[following] if following < changed else size
                found >>= shift
                found >>= ONE
                word += ONE
    for word in range(groups * GROUP * lanes, size):
        if _flagged(base[word], field, add, top):
            hit = word == awaited
            _flag(flags, seen, hit)
            seen += ONE
            if hit:
                following += ONE
                awaited = where[following] if following < changed else size
    return seen


def _flag_(flags: Any, seen: Any, hit: Any) -> None:
    byte, bit = seen >> BYTE, seen & np.uint64(7)
    if bit == NONE:
        flags[byte] = 0
    flags[byte] |= np.uint8((np.uint64(128) * np.uint64(hit)) >> bit)


def _read_(base: Any, new: Any, shift: Any, mask: Any, where: Any, pairs: Any, counts: Any) -> None:
    """Old and new words at `where`, and how many of each context."""
    for index in range(np.uint64(where.size)):
        at = where[index]
        old = base[at]
        pairs[index, NONE] = old
        pairs[index, ONE] = new[at]
        counts[(np.uint64(old) >> shift) & mask] += 1


def _emit_parted_(
    pairs: Any,
    shift: Any,
    mask: Any,
    threshold: Any,
    bits: Any,
    where: Any,
    flagged: Any,
    first: Any,
    gaps: Any,
    steps: Any,
    wide: Any,
    wide_first: Any,
) -> Any:
    """Steps and positions of the words below, steps and gaps of the others. Gap bytes, wide words of these and of those."""
    seen = after = gap_bytes = wides = wides_first = NONE
    rest = flagged
    for index in range(np.uint64(where.size)):
        old, new = pairs[index, NONE], pairs[index, ONE]
        zigzag = zigzag_of(old, new, bits)
        if (np.uint64(old) >> shift) & mask < threshold:
            first[seen] = where[index]
            steps[seen] = min(zigzag, ESCAPED)
            seen += ONE
            if zigzag >= ESCAPED:
                wide_first[wides_first] = new
                wides_first += ONE
            continue
        gap_bytes = put_gap(gaps, gap_bytes, where[index] - after)
        after = where[index] + ONE
        steps[rest] = min(zigzag, ESCAPED)
        rest += ONE
        if zigzag >= ESCAPED:
            wide[wides] = new
            wides += ONE
    return gap_bytes, wides, wides_first


def _unite_(
    base: Any,
    out: Any,
    eight: Any,
    eight_out: Any,
    bits: Any,
    field: Any,
    add: Any,
    top: Any,
    lanes: Any,
    flags: Any,
    steps: Any,
    wide: Any,
    gaps: Any,
    rest_steps: Any,
    rest_wide: Any,
) -> Any:
    """Copies stretch by stretch; in each, first the words below are changed, then the others."""
    size, groups = np.uint64(base.size), np.uint64(eight.size) // GROUP
    seen = changed = wides = rest = rest_wides = group = at_gap = at = NONE
    room = np.uint64(flags.size) * GROUP
    shift = bits - ONE
    while True:
        end = min(groups, group + STRETCH)
        while group < end:
            first = group * GROUP
            reached = top
            for index in range(first, first + GROUP):
                old = eight[index]
                eight_out[index] = old
                reached &= (old & field) + add
            group += ONE
            if reached == top:
                continue
            for index in range(first, first + GROUP):
                found = (~((eight[index] & field) + add) & top) >> shift
                word = index * lanes
                while found:
                    if found & ONE:
                        if seen == room:
                            return False
                        if flags[seen >> BYTE] & (np.uint64(128) >> (seen & np.uint64(7))):
                            wides = _change(base, out, word, steps[changed], wide, wides)
                            changed += ONE
                        seen += ONE
                    found >>= shift
                    found >>= ONE
                    word += ONE
        copied = group * GROUP * lanes
        if group == groups:  # and what fills no group
            for word in range(copied, size):
                out[word] = base[word]
                if _flagged(base[word], field, add, top):
                    if seen == room:
                        return False
                    if flags[seen >> BYTE] & (np.uint64(128) >> (seen & np.uint64(7))):
                        wides = _change(base, out, word, steps[changed], wide, wides)
                        changed += ONE
                    seen += ONE
            copied = size
        while at_gap < np.uint64(gaps.size):
            gap = np.uint64(gaps[at_gap])
            if at + gap >= copied:
                break
            at_gap += ONE
            at += gap
            if gap != ESCAPED:
                rest_wides = _change(base, out, at, rest_steps[rest], rest_wide, rest_wides)
                rest += ONE
                at += ONE
        if group == groups:
            break
    whole = changed == np.uint64(steps.size) and rest == np.uint64(rest_steps.size)
    return whole and room == (seen + np.uint64(7)) & ~np.uint64(7)


def _change_(base: Any, out: Any, word: Any, step: Any, wide: Any, wides: Any) -> Any:
    if step == ESCAPED:
        out[word] = wide[wides]
        return wides + ONE
    out[word] = stepped(base[word], step)
    return wides


_change = compiled(_change_)
_flag = compiled(_flag_)
_mark = compiled(_mark_)
_read = compiled(_read_)
_emit_bitmap = compiled(_emit_parted_)
_decode_bitmap = compiled(_unite_)
