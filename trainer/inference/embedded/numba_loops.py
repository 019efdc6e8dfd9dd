"""The engine's loops compiled by numba, one thread. Import fails where numba is not installed.

Rows are independent of each other: what else is in the batch changes no bit of a row's attention or sampling.
Shape letters as in `model.py`; E a row of all heads; R rows of the cache.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from trainer.inference.embedded.numba_products import PANEL as PANEL
from trainer.inference.embedded.numba_products import product

BUILT_ON = "7c83cc3501885a72"
"""Of the files that are compiled into these loops: numba looks only at the file of a loop when it keeps compiled code."""

_LOOSE = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order, but infinities keep their meaning
_options: Final[dict[str, Any]] = {
    "nogil": True,
    "boundscheck": False,
    "fastmath": _LOOSE,
    "error_model": "numpy",
}
compiled: Final[Any] = numba.njit(cache=True, **_options)
inlined: Final[Any] = numba.njit(inline="always", **_options)
# Ordinary calls, not decorators: numba has no types, and these names keep theirs.

_BLOCK = 64
"""Probabilities are summed in blocks, so that drawing walks over blocks and then within one."""
_TILE = 32
"""Shared keys (or values) that are read at a time; a multiple of 4."""
_LEAST = np.float32(-87.0)
"""Below it e^x leaves the ordinary numbers of fp32; it counts as 0."""
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
_E6, _E5, _E4 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_E3, _E2 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1)
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


def _as_float(typing: Any, bits: Any) -> Any:
    """The fp32 number of 32 bits."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), emit


as_float: Final[Any] = intrinsic(_as_float)


def _exp(x: Any) -> Any:
    """e^x for x <= 0, to the last bit or two, in arithmetic that compilers turn into vectors.

    Polynomial of the Cephes library: e^x = 2^n · e^r with |r| <= ln 2 / 2.
    """
    y = max(x, _LEAST)
    n = np.floor(y * _LOG2E + _HALF)
    r = y - n * _LN2_HIGH - n * _LN2_LOW
    p = ((((_E6 * r + _E5) * r + _E4) * r + _E3) * r + _E2) * r + _HALF
    value = (p * r * r + r + _ONE) * as_float((np.int32(n) + _BIAS) << _MANTISSA)
    return value if x >= _LEAST else _ZERO


exp = inlined(_exp)


def _norm(x_NC: Any, weight_C: Any, eps: Any, out_NC: Any) -> None:
    for n in range(x_NC.shape[0]):
        x, out = x_NC[n], out_NC[n]
        squares = _ZERO
        for c in range(x.shape[0]):
            squares += x[c] * x[c]
        scale = _ONE / np.sqrt(squares / np.float32(x.shape[0]) + eps)
        for c in range(x.shape[0]):
            out[c] = x[c] * scale * weight_C[c]


norm = compiled(_norm)


def _add_norm(x_NC: Any, delta_NC: Any, weight_C: Any, eps: Any, out_NC: Any) -> None:
    """x += delta; out = RMSNorm(x)."""
    for n in range(x_NC.shape[0]):
        x, delta, out = x_NC[n], delta_NC[n], out_NC[n]
        squares = _ZERO
        for c in range(x.shape[0]):
            value = x[c] + delta[c]
            x[c] = value
            squares += value * value
        scale = _ONE / np.sqrt(squares / np.float32(x.shape[0]) + eps)
        for c in range(x.shape[0]):
            out[c] = x[c] * scale * weight_C[c]


add_norm = compiled(_add_norm)


def _gate(gate_up_NF: Any, out_NF: Any) -> None:
    """silu(gate) · up."""
    width = out_NF.shape[1]
    for n in range(out_NF.shape[0]):
        gate, up, out = gate_up_NF[n][:width], gate_up_NF[n][width:], out_NF[n]
        for f in range(width):
            a = gate[f]
            e = exp(-abs(a))
            share = _ONE / (_ONE + e)
            out[f] = a * (share if a >= _ZERO else e * share) * up[f]


gate = compiled(_gate)


def _rotate(
    qkv_NE: Any,
    cos_TD: Any,
    sin_TD: Any,
    positions_N: Any,
    normed: Any,
    query_norm_D: Any,
    key_norm_D: Any,
    eps: Any,
    kv_heads: Any,
    rows_RE: Any,
    keys_N: Any,
    values_after: Any,
    q_NE: Any,
) -> None:
    """Norms (if `normed`) and rotary positions; queries to `q_NE`, keys and values into the cache's rows."""
    size = cos_TD.shape[1]
    half = size // 2
    heads = q_NE.shape[1] // size
    for n in range(qkv_NE.shape[0]):
        cos, sin, row = cos_TD[positions_N[n]], sin_TD[positions_N[n]], qkv_NE[n]
        key, value = rows_RE[keys_N[n]], rows_RE[keys_N[n] + values_after]
        for h in range(heads + kv_heads):
            x = row[h * size : (h + 1) * size]
            if h < heads:
                out, weight = q_NE[n][h * size : (h + 1) * size], query_norm_D
            else:
                out, weight = key[(h - heads) * size : (h - heads + 1) * size], key_norm_D
            if normed:
                squares = _ZERO
                for d in range(size):
                    squares += x[d] * x[d]
                scale = _ONE / np.sqrt(squares / np.float32(size) + eps)
                for d in range(half):
                    low, high = x[d] * scale * weight[d], x[d + half] * scale * weight[d + half]
                    out[d] = low * cos[d] + high * sin[d]
                    out[d + half] = high * cos[d + half] + low * sin[d + half]
            else:
                for d in range(half):
                    low, high = x[d], x[d + half]
                    out[d] = low * cos[d] + high * sin[d]
                    out[d + half] = high * cos[d + half] + low * sin[d + half]
        tail = row[(heads + kv_heads) * size :]
        for e in range(value.shape[0]):
            value[e] = tail[e]


rotate = compiled(_rotate)


def _enter(
    normed_NC: Any,
    weight_PIO: Any,
    bias_PO: Any,
    qkv_NE: Any,
    cos_TD: Any,
    sin_TD: Any,
    positions_N: Any,
    normed: Any,
    query_norm_D: Any,
    key_norm_D: Any,
    eps: Any,
    kv_heads: Any,
    rows_RE: Any,
    keys_N: Any,
    values_after: Any,
    q_NE: Any,
) -> None:
    """A layer up to its attention: queries to `q_NE`, keys and values into the cache's rows."""
    product(normed_NC, weight_PIO, bias_PO, qkv_NE)
    norms = (normed, query_norm_D, key_norm_D, eps)
    rotate(qkv_NE, cos_TD, sin_TD, positions_N, *norms, kv_heads, rows_RE, keys_N, values_after, q_NE)


enter = compiled(_enter)


def _leave(
    attended_NE: Any,
    out_PIO: Any,
    out_bias_PO: Any,
    x_NC: Any,
    delta_NC: Any,
    norm_mlp_C: Any,
    eps: Any,
    normed_NC: Any,
    gate_up_PIO: Any,
    gate_up_bias_PO: Any,
    gate_up_NF: Any,
    gated_NF: Any,
    down_PIO: Any,
    down_bias_PO: Any,
    norm_end_C: Any,
) -> None:
    """A layer from its attention on: `x_NC` goes on, `normed_NC` is what comes after it reads."""
    product(attended_NE, out_PIO, out_bias_PO, delta_NC)
    add_norm(x_NC, delta_NC, norm_mlp_C, eps, normed_NC)
    product(normed_NC, gate_up_PIO, gate_up_bias_PO, gate_up_NF)
    gate(gate_up_NF, gated_NF)
    product(gated_NF, down_PIO, down_bias_PO, delta_NC)
    add_norm(x_NC, delta_NC, norm_end_C, eps, normed_NC)


leave = compiled(_leave)


def _score(q_E: Any, rows_RE: Any, first: Any, begin: Any, end: Any, size: Any, p_HT: Any) -> None:
    """Products of a token's queries with keys [begin, end) of the sequence at row `first`."""
    heads = q_E.shape[0] // size
    group = q_E.shape[0] // rows_RE.shape[1]
    for t in range(begin, end):
        key = rows_RE[first + t]
        for h in range(heads):
            at, low = np.uint64(h * size), np.uint64(h // group * size)
            total = _ZERO
            for d in range(size):
                total += q_E[at + np.uint64(d)] * key[low + np.uint64(d)]
            p_HT[h, t] = total


def _soften(p_T: Any, length: Any, scale: Any) -> None:
    """Softmax of the first `length` scores."""
    top = p_T[0]
    for t in range(length):
        top = max(top, p_T[t])
    whole = _ZERO
    for t in range(length):
        e = exp((p_T[t] - top) * scale)
        p_T[t] = e
        whole += e
    share = _ONE / whole
    for t in range(length):
        p_T[t] *= share


def _gather(p_HT: Any, rows_RE: Any, first: Any, begin: Any, end: Any, size: Any, out_E: Any) -> None:
    """Adds values [begin, end), weighted. `begin` is a multiple of 4: sums keep one order."""
    heads = out_E.shape[0] // size
    group = out_E.shape[0] // rows_RE.shape[1]
    whole = begin + (end - begin) // 4 * 4
    for t in range(begin, whole, 4):
        a, b, c, z = rows_RE[first + t], rows_RE[first + t + 1], rows_RE[first + t + 2], rows_RE[first + t + 3]
        for h in range(heads):
            at, low = np.uint64(h * size), np.uint64(h // group * size)
            pa, pb, pc, pz = p_HT[h, t], p_HT[h, t + 1], p_HT[h, t + 2], p_HT[h, t + 3]
            for d in range(size):
                k = low + np.uint64(d)
                out_E[at + np.uint64(d)] += pa * a[k] + pb * b[k] + pc * c[k] + pz * z[k]
    for t in range(whole, end):
        a = rows_RE[first + t]
        for h in range(heads):
            at, low = np.uint64(h * size), np.uint64(h // group * size)
            pa = p_HT[h, t]
            for d in range(size):
                out_E[at + np.uint64(d)] += pa * a[low + np.uint64(d)]


_score_inlined, _soften_inlined, _gather_inlined = inlined(_score), inlined(_soften), inlined(_gather)


def _run(q_NE: Any, rows_RE: Any, first_N: Any, lengths_N: Any, shared: Any, values_after: Any, scale: Any, size: Any, p_NHT: Any, out_NE: Any) -> None:  # fmt: skip  # noqa: E501
    """Attention of tokens whose first `shared` keys and values are equal: those are read once for all of them, a tile at
    a time, while the tile is in the fast cache. `size` is a constant where it is known."""
    count = q_NE.shape[0]
    for begin in range(0, shared, _TILE):
        for n in range(count):
            _score_inlined(q_NE[n], rows_RE, first_N[0], begin, min(begin + _TILE, shared), size, p_NHT[n])
    for n in range(count):
        _score_inlined(q_NE[n], rows_RE, first_N[n], shared, lengths_N[n], size, p_NHT[n])
        for h in range(p_NHT.shape[1]):
            _soften_inlined(p_NHT[n, h], lengths_N[n], scale)
        for e in range(out_NE.shape[1]):
            out_NE[n, e] = _ZERO
    for begin in range(0, shared, _TILE):
        for n in range(count):
            after = first_N[0] + values_after
            _gather_inlined(p_NHT[n], rows_RE, after, begin, min(begin + _TILE, shared), size, out_NE[n])
    for n in range(count):
        _gather_inlined(p_NHT[n], rows_RE, first_N[n] + values_after, shared, lengths_N[n], size, out_NE[n])


_run_inlined = inlined(_run)


def _attend(
    q_NE: Any,
    rows_RE: Any,
    first_N: Any,
    lengths_N: Any,
    shared_N: Any,
    values_after: Any,
    scale: Any,
    size: Any,
    out_NE: Any,
) -> None:
    """Attention of each token over `lengths_N` cached ones; its keys begin at row `first_N`, values so much later.

    `shared_N` of them equal those of the token before (0: begins a run); a multiple of 4, the same within a run.
    """
    whole = q_NE.shape[0]
    begin = 0
    while begin < whole:
        end = begin + 1
        while end < whole and shared_N[end] > 0:
            end += 1
        shared = shared_N[end - 1]  # 0 for a run of one
        p = np.empty((end - begin, q_NE.shape[1] // size, lengths_N[begin:end].max()), np.float32)
        q, out, first, lengths = q_NE[begin:end], out_NE[begin:end], first_N[begin:end], lengths_N[begin:end]
        # The usual head sizes as constants: the compiler unrolls them, a third faster.
        if size == 64:
            _run_inlined(q, rows_RE, first, lengths, shared, values_after, scale, 64, p, out)
        elif size == 128:
            _run_inlined(q, rows_RE, first, lengths, shared, values_after, scale, 128, p, out)
        else:
            _run_inlined(q, rows_RE, first, lengths, shared, values_after, scale, size, p, out)
        begin = end


attend = compiled(_attend)


def _draw(logits_RV: Any, temperatures_R: Any, uniforms_R: Any, tokens_R: Any, logprobs_R: Any) -> None:
    """As `sampling.sample`: a token a row by inverse CDF, and its log-probability."""
    vocabulary = logits_RV.shape[1]
    blocks = (vocabulary + _BLOCK - 1) // _BLOCK
    p, sums = np.zeros(blocks * _BLOCK, np.float32), np.empty(blocks, np.float64)
    for r in range(logits_RV.shape[0]):
        x = logits_RV[r]
        top = x[0]
        for v in range(vocabulary):
            top = max(top, x[v])
        greedy = temperatures_R[r] == _ZERO
        sharpness = _ONE if greedy else _ONE / temperatures_R[r]
        for v in range(vocabulary):
            p[v] = exp((x[v] - top) * sharpness)
        whole: Any = 0.0
        for b in range(blocks):
            total: Any = _ZERO
            for v in range(b * _BLOCK, (b + 1) * _BLOCK):
                total += p[v]
            sums[b] = total
            whole += total
        token = -1
        if greedy:
            for v in range(vocabulary):
                if x[v] == top:
                    token = v
                    break
        else:
            point = uniforms_R[r] * whole
            reached: Any = 0.0
            for b in range(blocks):
                if reached + sums[b] <= point:
                    reached += sums[b]
                    continue
                for v in range(b * _BLOCK, (b + 1) * _BLOCK):
                    reached += p[v]
                    if p[v] > _ZERO:
                        token = v
                        if reached > point:
                            break
                if reached > point:
                    break
        if token < 0:  # the point was rounded up to the whole
            token = vocabulary - 1
            while token > 0 and not p[token] > _ZERO:
                token -= 1
        tokens_R[r] = token
        logprobs_R[r] = np.float64((x[token] - top) * sharpness) - math.log(whole)


draw = compiled(_draw)
