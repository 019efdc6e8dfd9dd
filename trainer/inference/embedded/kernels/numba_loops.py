"""The engine's loops compiled by numba, one thread. Import fails where numba is not installed.

Rows are independent of each other: what else is in the batch changes no bit of a row's attention or sampling.
Shape letters as in `model.py`; E a row of all heads; R rows of the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainer.inference.embedded.kernels.numba_attention import attend as attend
from trainer.inference.embedded.kernels.numba_attention import fold as fold
from trainer.inference.embedded.kernels.numba_basics import compiled, exp
from trainer.inference.embedded.kernels.numba_products import PANEL as PANEL
from trainer.inference.embedded.kernels.numba_products import product
from trainer.inference.embedded.kernels.vectors import WIDTH, larger, load, splat, store

BUILT_ON = "ea3a99ff64853071"
"""Digest of the files compiled into these loops: for its cache, numba looks only at the file of a loop."""

_BLOCK = 64
"""Probabilities are summed in blocks, so that drawing walks over blocks and then within one."""
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LOWEST = np.float32(-np.inf)


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


def _largest(x: Any, at: Any, count: Any, spare: Any) -> Any:
    """The largest of `count` numbers of a contiguous array from element `at` on. `spare` holds a vector."""
    flat = x.reshape(-1)
    whole = count - count % (4 * WIDTH)
    a = b = c = e = splat(_LOWEST)
    for v in range(at, at + whole, 4 * WIDTH):
        a, b = larger(load(flat, v), a), larger(load(flat, v + WIDTH), b)
        c, e = larger(load(flat, v + 2 * WIDTH), c), larger(load(flat, v + 3 * WIDTH), e)
    store(spare, 0, larger(larger(a, b), larger(c, e)))
    top = spare[0]
    for lane in range(WIDTH):
        top = max(top, spare[lane])
    for v in range(at + whole, at + count):
        top = max(top, flat[v])
    return top


largest = compiled(_largest)


def _draw(logits_RV: Any, temperatures_R: Any, uniforms_R: Any, tokens_R: Any, logprobs_R: Any) -> None:
    """As `sampling.sample`: a token a row by inverse CDF, and its log-probability."""
    vocabulary = logits_RV.shape[1]
    blocks = (vocabulary + _BLOCK - 1) // _BLOCK
    p, sums, spare = np.zeros(blocks * _BLOCK, np.float32), np.empty(blocks, np.float64), np.empty(WIDTH, np.float32)
    for r in range(logits_RV.shape[0]):
        x = logits_RV[r]
        top = largest(logits_RV, r * vocabulary, vocabulary, spare)
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
