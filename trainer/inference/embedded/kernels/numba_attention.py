"""Attention of decode rows, compiled by numba, one thread.

What is in registers is told by hand: sixteen keys give a vector of scores, and values are summed where they stay. A row's
sums keep one order, wherever its keys lie and whatever else is in the batch. Shape letters as in `model.py`; E a row of
all heads; R rows of the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.inference.embedded.kernels.numba_basics import compiled, exp, inlined
from trainer.inference.embedded.kernels.vectors import (
    WIDTH,
    fma,
    fold1,
    fold2,
    fold4,
    fold8,
    larger,
    load,
    prefetch,
    splat,
    spread,
    store,
)

BUILT_ON = "9c9474c72caf13d1"
"""As in `numba_loops.py`."""
_TILE = 32
"""Shared keys (or values) that are read at a time, while they are in the fast cache."""
_NEAR = 1 << 14
"""Numbers of a row's own keys (or values) that are brought to the second cache at a time."""
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LOWEST = np.float32(-np.inf)
_PAIR = 2 * WIDTH
"""Values of a head that are summed at a time."""


def _four(q: Any, at: Any, rows: Any, k0: Any, k1: Any, k2: Any, k3: Any, size: Any) -> Any:
    """Products of a query with four keys, in four sums each: eight of the sixteen registers of AVX2."""
    a0 = a1 = a2 = a3 = splat(_ZERO)
    for d in range(0, size, WIDTH):
        x = load(q, at + d)
        a0, a1 = fma(x, load(rows, k0 + d), a0), fma(x, load(rows, k1 + d), a1)
        a2, a3 = fma(x, load(rows, k2 + d), a2), fma(x, load(rows, k3 + d), a3)
    return fold4(fold8(a0, a1), fold8(a2, a3))


four = inlined(_four)


def _sixteen(q: Any, at: Any, rows: Any, key: Any, step: Any, last: Any, size: Any, out: Any, to: Any) -> None:
    """Products of a query with the keys at `key`, `key` + `step` and so on; behind `last` that one again."""
    k1, k2, k3 = min(key + step, last), min(key + 2 * step, last), min(key + 3 * step, last)
    k4, k5, k6 = min(key + 4 * step, last), min(key + 5 * step, last), min(key + 6 * step, last)
    k7, k8, k9 = min(key + 7 * step, last), min(key + 8 * step, last), min(key + 9 * step, last)
    ka, kb, kc = min(key + 10 * step, last), min(key + 11 * step, last), min(key + 12 * step, last)
    kd, ke, kf = min(key + 13 * step, last), min(key + 14 * step, last), min(key + 15 * step, last)
    even = fold2(four(q, at, rows, key, k8, k4, kc, size), four(q, at, rows, k2, ka, k6, ke, size))
    odd = fold2(four(q, at, rows, k1, k9, k5, kd, size), four(q, at, rows, k3, kb, k7, kf, size))
    store(out, to, fold1(even, odd))


sixteen = compiled(_sixteen)


def _score(q_NE: Any, n: Any, rows_RE: Any, first: Any, begin: Any, end: Any, size: Any, p_NHT: Any, soon: Any) -> None:
    """Products of token `n`'s queries with keys [begin, end) of the sequence at row `first`. Writes on behind them, up to
    a whole vector. Meanwhile as many rows from `soon` on come nearer (-1: none)."""
    width, heads = rows_RE.shape[1], p_NHT.shape[1]
    group = q_NE.shape[1] // width
    if size % WIDTH == 0:
        part = width * WIDTH // heads
        for t in range(begin, end, WIDTH):
            for h in range(heads):
                if soon >= 0:
                    ahead = (soon + t - begin) * width + h * part
                    for line in range(ahead, ahead + part, WIDTH):
                        prefetch(rows_RE, line)
                low = h // group * size
                key, last = (first + t) * width + low, (first + end - 1) * width + low
                at, to = n * q_NE.shape[1] + h * size, (n * heads + h) * p_NHT.shape[2] + t
                sixteen(q_NE, at, rows_RE, key, width, last, size, p_NHT, to)
        return
    for t in range(begin, end):
        for h in range(heads):
            total = _ZERO
            for d in range(size):
                total += q_NE[n, h * size + d] * rows_RE[first + t, h // group * size + d]
            p_NHT[n, h, t] = total


def _soften(p_NHT: Any, n: Any, h: Any, length: Any, scale: Any) -> None:
    """Softmax of the first `length` scores. The last vector of the row is room."""
    row = p_NHT[n, h]
    at, room = (n * p_NHT.shape[1] + h) * p_NHT.shape[2], p_NHT.shape[2] - WIDTH
    whole = length - length % WIDTH
    most = splat(_LOWEST)
    for t in range(0, whole, WIDTH):
        most = larger(load(p_NHT, at + t), most)
    store(p_NHT, at + room, most)
    top = row[room]
    for t in range(room, room + WIDTH):
        top = max(top, row[t])
    for t in range(whole, length):
        top = max(top, row[t])
    total = _ZERO
    for t in range(length):
        e = exp((row[t] - top) * scale)
        row[t] = e
        total += e
    share = _ONE / total
    for t in range(length):
        row[t] *= share


def _fold(scores_RT: Any, top_R: Any, sum_R: Any, out_RD: Any, scale: Any, spare: Any) -> None:
    """Online softmax (https://arxiv.org/abs/2205.14135): scores of further keys become weights relative to the highest score so
    far, and what was summed under a lower one is scaled down to it. `spare` holds a vector."""
    rows, length = scores_RT.shape
    whole = length - length % WIDTH
    for r in range(rows):
        row, out = scores_RT[r], out_RD[r]
        most = splat(_LOWEST)
        for t in range(r * length, r * length + whole, WIDTH):
            most = larger(load(scores_RT, t), most)
        store(spare, 0, most)
        top = top_R[r]
        for lane in range(WIDTH):
            top = max(top, spare[lane])
        for t in range(whole, length):
            top = max(top, row[t])
        total = _ZERO
        for t in range(length):
            e = exp((row[t] - top) * scale)
            row[t] = e
            total += e
        kept = exp((top_R[r] - top) * scale)
        sum_R[r] = sum_R[r] * kept + total
        top_R[r] = top
        for d in range(out.shape[0]):
            out[d] *= kept


fold = compiled(_fold)


def _pair(p: Any, one: Any, other: Any, rows: Any, at: Any, far: Any, step: Any, count: Any, out: Any, to: Any, beyond: Any, same: Any, soon: Any) -> None:  # fmt: skip  # noqa: E501
    """Adds `count` values, weighted, to 32 sums of each of two heads: at `to`, and `beyond` it. `same`: of the same values.
    Meanwhile as many values `soon` later come nearer (0: none do)."""
    a, b = load(out, to), load(out, to + WIDTH)
    c, e = load(out, to + beyond), load(out, to + beyond + WIDTH)
    for t in range(count):
        here = at + t * step
        v, w = load(rows, here), load(rows, here + WIDTH)
        if soon != 0:
            prefetch(rows, here + soon)
            prefetch(rows, here + soon + WIDTH)
        s, z = spread(p, one + t), spread(p, other + t)
        a, b = fma(s, v, a), fma(s, w, b)
        if same:
            c, e = fma(z, v, c), fma(z, w, e)
        else:
            c, e = fma(z, load(rows, here + far), c), fma(z, load(rows, here + far + WIDTH), e)
    store(out, to, a)
    store(out, to + WIDTH, b)
    store(out, to + beyond, c)
    store(out, to + beyond + WIDTH, e)


pair = compiled(_pair)


def _gather(
    p_NHT: Any, n: Any, rows_RE: Any, first: Any, begin: Any, end: Any, size: Any, out_NE: Any, soon: Any
) -> None:
    """Adds values [begin, end), weighted, one after the other. Meanwhile as many rows from `soon` on come nearer (-1: none)."""
    width, heads, room = rows_RE.shape[1], p_NHT.shape[1], p_NHT.shape[2]
    group = out_NE.shape[1] // width
    if size % _PAIR == 0:
        p = p_NHT.reshape(-1)
        later = (soon - first - begin) * width if soon >= 0 else 0
        for h in range(0, heads, 2):
            beside = min(h + 1, heads - 1)  # the last of an odd number is computed twice
            one, other = (n * heads + h) * room + begin, (n * heads + beside) * room + begin
            low = h // group * size
            far, beyond = beside // group * size - low, (beside - h) * size
            for d in range(0, size, _PAIR):
                at, to = (first + begin) * width + low + d, n * out_NE.shape[1] + h * size + d
                if far == 0:
                    pair(p, one, other, rows_RE, at, 0, width, end - begin, out_NE, to, beyond, True, later)
                else:
                    pair(p, one, other, rows_RE, at, far, width, end - begin, out_NE, to, beyond, False, later)
        return
    for t in range(begin, end):
        for h in range(heads):
            share = p_NHT[n, h, t]
            for d in range(size):
                out_NE[n, h * size + d] += share * rows_RE[first + t, h // group * size + d]


def _fetch(rows_RE: Any, row: Any, count: Any, p_NHT: Any) -> None:
    """Reads `count` rows on, one after the other: so the machine sees them coming, which it does not where scores jump between
    sixteen. What it finds goes to the last vector of `p_NHT`, lest it be left out."""
    width, a = rows_RE.shape[1], splat(_ZERO)
    for at in range(row * width, (row + count) * width - WIDTH + 1, WIDTH):
        a = larger(load(rows_RE, at), a)
    store(p_NHT, p_NHT.size - WIDTH, a)


score, soften, gather, fetch = compiled(_score), compiled(_soften), compiled(_gather), compiled(_fetch)


def _first(tables_SB: Any, s: Any, t: Any) -> Any:
    """Row of a sequence's token 0 if its block with token `t` were one of a range: token `t` lies `t` rows further."""
    return (tables_SB[s, t // WIDTH] - t // WIDTH) * WIDTH


first_row = inlined(_first)


def _end(tables_SB: Any, s: Any, begin: Any, end: Any) -> Any:
    """The end of the tokens from `begin` on, at most `end`, whose blocks are neighbours."""
    block = begin // WIDTH
    until = (block + 1) * WIDTH
    while until < end and tables_SB[s, block + 1] == tables_SB[s, block] + 1:
        block += 1
        until += WIDTH
    return min(until, end)


range_end = compiled(_end)


def _run(q_NE: Any, rows_RE: Any, tables_SB: Any, table_N: Any, base: Any, lengths_N: Any, shared: Any, values_after: Any, scale: Any, size: Any, p_NHT: Any, out_NE: Any) -> None:  # fmt: skip  # noqa: E501
    """Attention of tokens whose first `shared` keys and values are equal: those are read once for all of them, a tile at
    a time, while the tile is in the fast cache."""
    count = q_NE.shape[0]
    near = max(WIDTH, _NEAR // rows_RE.shape[1] // WIDTH * WIDTH)
    there = 0  # keys (or values) of those that come next that were brought near while others were computed
    for begin in range(0, shared, _TILE):
        start = begin
        while start < min(begin + _TILE, shared):
            end = range_end(tables_SB, table_N[0], start, min(begin + _TILE, shared))
            first = base + first_row(tables_SB, table_N[0], start)
            for n in range(count):
                score(q_NE, n, rows_RE, first, start, end, size, p_NHT, -1)
            start = end
    for n in range(count):
        begin = shared
        while begin < lengths_N[n]:
            end = range_end(tables_SB, table_N[n], begin, min(begin + near, lengths_N[n]))
            first = base + first_row(tables_SB, table_N[n], begin)
            if end - begin > there:
                fetch(rows_RE, first + begin + there, end - begin - there, p_NHT)
            there = end - begin
            if end < lengths_N[n]:
                soon = base + first_row(tables_SB, table_N[n], end) + end
            elif n + 1 < count:
                soon = base + first_row(tables_SB, table_N[n + 1], shared) + shared
            else:
                soon = base + values_after + first_row(tables_SB, table_N[0], shared) + shared
            score(q_NE, n, rows_RE, first, begin, end, size, p_NHT, soon)
            begin = end
        for h in range(p_NHT.shape[1]):
            soften(p_NHT, n, h, lengths_N[n], scale)
        for e in range(out_NE.shape[1]):
            out_NE[n, e] = _ZERO
    for begin in range(0, shared, _TILE):
        start = begin
        while start < min(begin + _TILE, shared):
            end = range_end(tables_SB, table_N[0], start, min(begin + _TILE, shared))
            first = base + values_after + first_row(tables_SB, table_N[0], start)
            for n in range(count):
                gather(p_NHT, n, rows_RE, first, start, end, size, out_NE, -1)
            start = end
    for n in range(count):
        begin = shared
        while begin < lengths_N[n]:
            end = range_end(tables_SB, table_N[n], begin, min(begin + near, lengths_N[n]))
            first = base + values_after + first_row(tables_SB, table_N[n], begin)
            if end - begin > there:
                fetch(rows_RE, first + begin + there, end - begin - there, p_NHT)
            there = end - begin
            if end < lengths_N[n]:
                soon = base + values_after + first_row(tables_SB, table_N[n], end) + end
            elif n + 1 < count:
                soon = base + values_after + first_row(tables_SB, table_N[n + 1], shared) + shared
            else:
                soon = -1
            gather(p_NHT, n, rows_RE, first, begin, end, size, out_NE, soon)
            begin = end


run = compiled(_run)


def _attend(
    q_NE: Any,
    rows_RE: Any,
    tables_SB: Any,
    table_N: Any,
    base: Any,
    lengths_N: Any,
    shared_N: Any,
    values_after: Any,
    scale: Any,
    size: Any,
    out_NE: Any,
) -> None:
    """Attention of each token over `lengths_N` cached ones: their keys lie in blocks of 16 rows from row `base` on, as row
    `table_N` of `tables_SB` says, values so much later.

    `shared_N` of them equal those of the token before (0: begins a run); the same within a run.
    """
    whole = q_NE.shape[0]
    begin = 0
    while begin < whole:
        end = begin + 1
        while end < whole and shared_N[end] > 0:
            end += 1
        shared = shared_N[end - 1]  # 0 for a run of one
        room = (lengths_N[begin:end].max() + 2 * WIDTH - 1) // WIDTH * WIDTH + WIDTH
        p = np.empty((end - begin, q_NE.shape[1] // size, room), np.float32)
        q, out, lengths = q_NE[begin:end], out_NE[begin:end], lengths_N[begin:end]
        run(q, rows_RE, tables_SB, table_N[begin:end], base, lengths, shared, values_after, scale, size, p, out)
        begin = end


attend = compiled(_attend)
