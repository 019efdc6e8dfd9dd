"""Compiled loops for words parted in two (`Loops.part`, `Loops.unite`). Import fails where numba is not installed.

Few words lie below the threshold, so eight bytes are tested at once: with the context's bits alone in each lane, adding
what is missing from the threshold to the lane's top bit sets that bit exactly where the context reaches it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.weights.codec.numba_loops import (
    MOST,
    NONE,
    ONE,
    compiled,
    eights,
    put_gap,
    stepped,
    where_changed,
    zigzag_of,
)
from trainer.weights.codec.streams import ESCAPE, Parted, Pick, outside
from trainer.weights.codec.words import WordFormat, Words

STRETCH = np.uint64(1 << 10)
"""Groups of eight eights that are copied at a time, so that they are in the cache when they are changed."""
GROUP, BYTE = np.uint64(8), np.uint64(3)


def part(base: Words, new: Words, form: WordFormat, pick: Pick) -> Parted:
    where = where_changed(base, new, form)
    old, fresh = base[where], new[where]
    contexts = (old >> form.shift) & form.mask
    low = pick(np.bincount(contexts, minlength=form.mask + 1))
    is_below = contexts < low
    seen = 0
    bits = np.empty(base.size // 8 + 2, np.uint8)
    lanes = _lanes(form, low)
    rest = where
    if low:
        first, rest = where[is_below], where[~is_below]
        old, fresh = (np.concatenate([words[is_below], words[~is_below]]) for words in (old, fresh))
        seen = int(_mark(base, eights(base), *lanes, first, bits))
    gaps = np.empty(rest.size + base.size // ESCAPE + 1, np.uint8)
    gap_bytes = _gaps(rest, gaps)
    steps, wide = np.empty(where.size, np.uint8), np.empty(where.size, form.words)
    below = where.size - rest.size
    wide_below, wides = _emit_steps(old, fresh, lanes[0], np.uint64(below), steps, wide)
    return Parted(low, below, int(wide_below), bits[: -(-seen // 8)], gaps[: int(gap_bytes)], steps, wide[: int(wides)])


def unite(base: Words, parted: Parted, form: WordFormat, out: Words) -> None:
    cut, wide_cut = parted.below, parted.wide_below
    whole = _unite(
        base,
        out,
        eights(base),
        eights(out),
        *_lanes(form, parted.low),
        parted.bits,
        parted.steps[:cut],
        parted.wide[:wide_cut],
        parted.gaps,
        parted.steps[cut:],
        parted.wide[wide_cut:],
    )
    if not whole:
        raise outside()


def _lanes(form: WordFormat, low: int) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]:
    """Bits of a word, and in every lane of eight bytes: the context, what to add, the top bit. Then lanes."""
    bits = 8 * form.size
    ones = sum(1 << (bits * lane) for lane in range(64 // bits))
    top = 1 << (bits - 1)
    assert form.mask << form.shift < top and low << form.shift <= top
    return (
        np.uint64(bits),
        np.uint64(ones * (form.mask << form.shift)),
        np.uint64(ones * (top - (low << form.shift))),
        np.uint64(ones * top),
        np.uint64(64 // bits),
    )


def _below_(word: Any, field: Any, add: Any, top: Any) -> Any:
    """Whether a word, alone in the lowest lane, lies below the threshold."""
    full = top & (NONE - top)  # the lowest lane's top bit
    return ((np.uint64(word) & field) + add) & full == NONE


_below = compiled(_below_)


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
        if _below(base[word], field, add, top):
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


def _gaps_(where: Any, gaps: Any) -> Any:
    """Gap bytes."""
    after = gap_bytes = NONE
    for index in range(np.uint64(where.size)):
        gap_bytes = put_gap(gaps, gap_bytes, where[index] - after)
        after = where[index] + ONE
    return gap_bytes


def _emit_steps_(old: Any, new: Any, bits: Any, first: Any, steps: Any, wide: Any) -> Any:
    """Wide words of the first, of all."""
    wides = before = NONE
    for index in range(np.uint64(steps.size)):
        if index == first:
            before = wides
        zigzag = zigzag_of(old[index], new[index], bits)
        steps[index] = min(zigzag, MOST)
        if zigzag >= MOST:
            wide[wides] = new[index]
            wides += ONE
    return (wides if first >= np.uint64(steps.size) else before), wides


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
                if _below(base[word], field, add, top):
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
            if gap != MOST:
                rest_wides = _change(base, out, at, rest_steps[rest], rest_wide, rest_wides)
                rest += ONE
                at += ONE
        if group == groups:
            break
    whole = changed == np.uint64(steps.size) and rest == np.uint64(rest_steps.size)
    return whole and room == (seen + np.uint64(7)) & ~np.uint64(7)


def _change_(base: Any, out: Any, word: Any, step: Any, wide: Any, wides: Any) -> Any:
    if step == MOST:
        out[word] = wide[wides]
        return wides + ONE
    out[word] = stepped(base[word], step)
    return wides


_change = compiled(_change_)
_flag = compiled(_flag_)
_mark = compiled(_mark_)
_gaps = compiled(_gaps_)
_emit_steps = compiled(_emit_steps_)
_unite = compiled(_unite_)
