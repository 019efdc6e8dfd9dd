"""The smallest form of a delta: floating words of one or two bytes, few of which change, as decisions of a range coder.

Words come in memory order; the context of a word is its old exponent. In a context in which many words change, each word
costs a decision. In the others a gap says how many words of the context follow until the next one changes. A new word is
a step from the old one where sign and magnitude are near, and otherwise its own bits. Odds adapt to each tensor in turn.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from trainer.errors import CorruptPayload
from trainer.weights.codec.range_coder import (
    IS_COMPILED,
    NEW,
    READ_AHEAD,
    Coder,
    Odds,
    compiled,
    finish,
    get_bit,
    get_even,
    new_odds,
    put_bit,
    put_even,
    start,
)
from trainer.weights.codec.streams import outside
from trainer.weights.codec.words import Bytes, WordFormat, Words

__all__ = ["IS_COMPILED", "MAX_CHANGED", "decode", "encode", "fits"]

BUILT_ON = "8a2ecbd3c18b93a2"
"""Digest of range_coder.py, which is compiled into these loops: numba compiles anew when this file changes, and only then."""
MAX_CHANGED = 0.1
"""Share of changed words up to which this form is worth its time: 100 to 150 ns a changed word."""
CROWDED = 12
"""A context with fewer words than this for each changed one costs a decision a word (measured: 8 to 16 are alike)."""
ABSENT, GAPS, FLAGS = range(3)
"""How the changed words of a context are found."""
NEVER = 1 << 40
LEAVES = 32
"""Sizes of gaps, in bits; the last one says that none follows."""
STEPS = 16
"""Sizes of steps between near words, in bits: as many as a mantissa has, at most."""
EVEN_BITS = 16
MARGIN = 128
"""Bytes that one word cannot exceed."""


def fits(form: WordFormat) -> bool:
    """Whether words of this format are a sign, an exponent of more than one bit, and a mantissa, in one or two bytes."""
    return (
        form.size <= 2
        and form.shift > 0
        and (form.mask << form.shift) == (1 << (8 * form.size - 1)) - (1 << form.shift)
    )


class Places(NamedTuple):
    """Where the odds of each kind of decision begin; they have a row for each context where not said otherwise."""

    kind: int
    """Is the context there, does it have flags: [2]."""
    flag: int
    gap: int
    """Size of a gap in bits."""
    gap_top: int
    """Its two highest bits below the leading one, by context and size."""
    far: int
    sign: int
    """Does the magnitude fall (near), does the sign flip (far): [contexts, 2]."""
    one: int
    """Is the step the smallest there is."""
    near: int
    """Size of a larger step in bits."""
    near_top: int
    exponent: int
    """The new exponent, by the old one and whether the sign flips."""
    mantissa: int
    """Its two highest bits, by the new exponent."""


def _odds(form: WordFormat) -> tuple[Odds, Places]:
    contexts = form.mask + 1
    sizes = [1, LEAVES, 4 * LEAVES, 1, 2, 1, STEPS, 4 * STEPS, 2 * contexts, 4]
    *begins, end = itertools.accumulate((contexts * size for size in sizes), initial=2)
    return new_odds(end), Places(0, *begins)


def encode(base: Words, new: Words, form: WordFormat, changed: int) -> Bytes | None:
    """Coded bytes; `changed` words differ. None if they would not be shorter than a plain list of the new words."""
    base, new = (words.astype(np.uint16, copy=False) for words in (base, new))  # one type to compile for
    gaps, kinds, first = _measure(base, new, changed, form.shift, form.mask, CROWDED)
    out = np.empty(8 * (form.mask + 1) + 6 * changed + 2 * MARGIN, np.uint8)
    size = _encode(base, new, form.shift, form.mask, gaps, kinds, first, out, *_odds(form))
    return out[:size] if size >= 0 else None


def decode(base: Words, data: Bytes, form: WordFormat, changed: int, out: Words) -> None:
    """Inverse of `encode`. Raises CorruptPayload."""
    old = base.astype(np.uint16, copy=False)
    fresh = out if out.dtype == old.dtype else np.empty_like(old)
    found, read = _decode(old, data, form.shift, form.mask, fresh, *_odds(form))
    if fresh is not out:
        out[...] = fresh
    if found != changed or read > data.size + READ_AHEAD:
        raise outside() if found > changed else CorruptPayload(f"a delta changes {found} words and promises {changed}")


@compiled
def _measure(base: Any, new: Any, changed: int, shift: int, mask: int, crowded: int) -> Any:
    """For each changed word the gap to the next one of its context; how each context is coded; the first gaps."""
    seen = np.zeros(mask + 1, np.int64)
    after = np.zeros(mask + 1, np.int64)
    changes = np.zeros(mask + 1, np.int64)
    last = np.full(mask + 1, -1, np.int64)
    first = np.full(mask + 1, -1, np.int64)
    gaps = np.full(changed, -1, np.int64)
    index = 0
    for at in range(base.size):
        old = base[at]
        context = (int(old) >> shift) & mask
        if old != new[at]:
            gap = seen[context] - after[context]
            if last[context] < 0:
                first[context] = gap
            else:
                gaps[last[context]] = gap
            last[context] = index
            after[context] = seen[context] + 1
            changes[context] += 1
            index += 1
        seen[context] += 1
    kinds = np.zeros(mask + 1, np.int64)
    for context in range(mask + 1):
        if changes[context]:
            kinds[context] = FLAGS if changes[context] * crowded > seen[context] else GAPS
    return gaps, kinds, first


@compiled
def _bits_of(value: int) -> int:
    bits = 0
    while value:
        bits += 1
        value >>= 1
    return bits


@compiled
def _put_tree(coder: Coder, out: Any, odds: Any, root: int, value: int, depth: int) -> Coder:
    node = 1
    for level in range(depth - 1, -1, -1):
        bit = (value >> level) & 1
        coder = put_bit(coder, out, odds, root + node, bit)
        node = 2 * node + bit
    return coder


@compiled
def _get_tree(coder: Coder, data: Any, odds: Any, root: int, depth: int) -> tuple[int, Coder]:
    node = 1
    for _ in range(depth):
        bit, coder = get_bit(coder, data, odds, root + node)
        node = 2 * node + bit
    return node - (1 << depth), coder


@compiled
def _put_below(coder: Coder, out: Any, odds: Any, root: int, value: int, bits: int) -> Coder:
    """The lower `bits` bits of a value: two of them by their odds."""
    known = min(bits, 2)
    rest = bits - known
    coder = _put_tree(coder, out, odds, root, (value >> rest) & ((1 << known) - 1), known)
    while rest:
        some = min(rest, EVEN_BITS)
        rest -= some
        coder = put_even(coder, out, (value >> rest) & ((1 << some) - 1), some)
    return coder


@compiled
def _get_below(coder: Coder, data: Any, odds: Any, root: int, bits: int) -> tuple[int, Coder]:
    known = min(bits, 2)
    value, coder = _get_tree(coder, data, odds, root, known)
    rest = bits - known
    while rest:
        some = min(rest, EVEN_BITS)
        rest -= some
        low, coder = get_even(coder, data, some)
        value = (value << some) | low
    return value, coder


@compiled
def _put_gap(coder: Coder, out: Any, odds: Any, places: Places, context: int, gap: int) -> Coder:
    size = _bits_of(gap + 1) - 1 if gap >= 0 else LEAVES - 1
    coder = _put_tree(coder, out, odds, places.gap + context * LEAVES, size, 5)
    if gap >= 0:
        coder = _put_below(coder, out, odds, places.gap_top + (context * LEAVES + size) * 4, gap + 1, size)
    return coder


@compiled
def _get_gap(coder: Coder, data: Any, odds: Any, places: Places, context: int) -> tuple[int, Coder]:
    size, coder = _get_tree(coder, data, odds, places.gap + context * LEAVES, 5)
    if size == LEAVES - 1:
        return NEVER, coder
    low, coder = _get_below(coder, data, odds, places.gap_top + (context * LEAVES + size) * 4, size)
    return (1 << size) + low - 1, coder


@compiled
def _encode(
    base: Any, new: Any, shift: int, mask: int, gaps: Any, kinds: Any, first: Any, out: Any, odds: Any, places: Places
) -> int:
    contexts = mask + 1
    coder = NEW
    for context in range(contexts):
        coder = put_bit(coder, out, odds, places.kind, int(kinds[context] != ABSENT))
        if kinds[context] != ABSENT:
            coder = put_bit(coder, out, odds, places.kind + 1, int(kinds[context] == FLAGS))
        if kinds[context] == GAPS:
            coder = _put_gap(coder, out, odds, places, context, first[context])
    index = 0
    for at in range(base.size):
        old, now = int(base[at]), int(new[at])
        context = (old >> shift) & mask
        flagged = kinds[np.uint32(context)] == FLAGS
        if old == now and not flagged:
            continue
        if coder[2] > out.size - MARGIN:
            return -1
        if flagged:
            coder = put_bit(coder, out, odds, places.flag + context, int(old != now))
        if old != now:
            coder = _put_word(coder, out, old, now, shift, mask, odds, places)
            if not flagged:
                coder = _put_gap(coder, out, odds, places, context, gaps[index])
            index += 1
    return finish(coder, out)


@compiled
def _put_word(coder: Coder, out: Any, old: int, now: int, shift: int, mask: int, odds: Any, places: Places) -> Coder:
    contexts = mask + 1
    context = (old >> shift) & mask
    magnitude = (contexts << shift) - 1
    flips = int((old ^ now) > magnitude)
    step = (now & magnitude) - (old & magnitude)
    size = abs(step)
    is_far = int(flips > 0 or size >> shift > 0)
    coder = put_bit(coder, out, odds, places.far + context, is_far)
    coder = put_bit(coder, out, odds, places.sign + 2 * context + is_far, flips if is_far else int(step < 0))
    if is_far:
        fresh = (now >> shift) & mask
        coder = _put_tree(coder, out, odds, places.exponent + (2 * context + flips) * contexts, fresh, _bits_of(mask))
        return _put_below(coder, out, odds, places.mantissa + fresh * 4, now, shift)
    coder = put_bit(coder, out, odds, places.one + context, int(size == 1))
    if size == 1:
        return coder
    below = _bits_of(size) - 1
    coder = _put_tree(coder, out, odds, places.near + context * STEPS, below, _bits_of(shift - 1))
    return _put_below(coder, out, odds, places.near_top + (context * STEPS + below) * 4, size, below)


@compiled
def _decode(base: Any, data: Any, shift: int, mask: int, out: Any, odds: Any, places: Places) -> tuple[int, int]:
    """How many words it changed, and bytes it read."""
    contexts = mask + 1
    coder = start(data)
    left = np.full(contexts, NEVER, np.int64)
    flagged = np.zeros(contexts, np.int64)
    for context in range(contexts):
        is_there, coder = get_bit(coder, data, odds, places.kind)
        if is_there:
            flagged[context], coder = get_bit(coder, data, odds, places.kind + 1)
            left[context] = 0
            if not flagged[context]:
                left[context], coder = _get_gap(coder, data, odds, places, context)
    changed = 0
    for at in range(base.size):
        word = base[at]
        out[at] = word
        context = (int(word) >> shift) & mask
        if left[np.uint32(context)]:
            left[np.uint32(context)] -= 1
            continue
        if flagged[context]:
            changes, coder = get_bit(coder, data, odds, places.flag + context)
            if not changes:
                continue
        out[at], coder = _get_word(coder, data, int(word), shift, mask, odds, places)
        changed += 1
        if not flagged[context]:
            left[context], coder = _get_gap(coder, data, odds, places, context)
    return changed, coder[2]


@compiled
def _get_word(coder: Coder, data: Any, old: int, shift: int, mask: int, odds: Any, places: Places) -> tuple[int, Coder]:
    contexts = mask + 1
    context = (old >> shift) & mask
    magnitude = (contexts << shift) - 1
    is_far, coder = get_bit(coder, data, odds, places.far + context)
    turn, coder = get_bit(coder, data, odds, places.sign + 2 * context + is_far)
    if is_far:
        fresh, coder = _get_tree(coder, data, odds, places.exponent + (2 * context + turn) * contexts, _bits_of(mask))
        low, coder = _get_below(coder, data, odds, places.mantissa + fresh * 4, shift)
        return ((old ^ (turn * (magnitude + 1))) & (magnitude + 1)) | (fresh << shift) | low, coder
    is_one, coder = get_bit(coder, data, odds, places.one + context)
    size = 1
    if not is_one:
        below, coder = _get_tree(coder, data, odds, places.near + context * STEPS, _bits_of(shift - 1))
        low, coder = _get_below(coder, data, odds, places.near_top + (context * STEPS + below) * 4, below)
        size = (1 << below) + low
    return (old & (magnitude + 1)) | (((old & magnitude) + (-size if turn else size)) & magnitude), coder
