"""Products with weights, compiled by numba: faster than the libraries' for the few rows of a decode step.

Each number is one sum over the inputs in their order, so a row's bits do not depend on which rows are beside it.
Shape letters as in `model.py`; I inputs, O outputs, P panels of 32 outputs.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from trainer.inference.embedded.kernels.vectors import fma, load, prefetch, splat, store

BUILT_ON = "5e1a1fdc5de9a130"
"""As in `numba_loops.py`."""
PANEL = 32
"""Outputs that are computed at a time: two vectors, for eight rows, so that all sums stay in registers."""
_FEW = 4
"""Fewer rows than this are taken one by one."""

exact: Final[dict[str, Any]] = {
    "nogil": True,
    "boundscheck": False,
    "fastmath": {"contract", "nsz", "arcp"},
    "error_model": "numpy",
}
"""Sums keep their order."""


def _few_rows(x: Any, rows: Any, panels_PIO: Any, p: Any, bias: Any, out: Any, to: Any, stride: Any) -> None:
    inputs = panels_PIO.shape[1]
    for n in range(rows - rows % 8 if rows % 8 < _FEW else rows, rows):
        a, b = load(bias, p * PANEL), load(bias, p * PANEL + 16)
        at = p * inputs * PANEL
        for i in range(n * inputs, (n + 1) * inputs):
            s = splat(x[i])
            a, b = fma(s, load(panels_PIO, at), a), fma(s, load(panels_PIO, at + 16), b)
            at += PANEL
        store(out, to + n * stride, a)
        store(out, to + n * stride + 16, b)


def _eights(x: Any, rows: Any, panels_PIO: Any, p: Any, bias: Any, out: Any, to: Any, stride: Any) -> None:
    inputs, last = panels_PIO.shape[1], rows - 1
    for n in range(0, rows if rows % 8 >= _FEW else rows - rows % 8, 8):
        # Weights come from memory, once a step: the next panel is on its way, an eighth at a time, while this one is used.
        soon = (p + 1) * inputs * PANEL + n // 8 % 8 * inputs * 4
        # Rows that are not there are computed as the last one, and dropped.
        n0, n1, n2, n3 = n * inputs, (n + 1) * inputs, (n + 2) * inputs, (n + 3) * inputs
        n4, n5 = min(n + 4, last) * inputs, min(n + 5, last) * inputs
        n6, n7 = min(n + 6, last) * inputs, min(n + 7, last) * inputs
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = load(bias, p * PANEL)
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = load(bias, p * PANEL + 16)
        at = p * inputs * PANEL
        for i in range(inputs):
            prefetch(panels_PIO, soon + 4 * i)
            u, v = load(panels_PIO, at), load(panels_PIO, at + 16)
            at += PANEL
            s = splat(x[n0 + i])
            a0, b0 = fma(s, u, a0), fma(s, v, b0)
            s = splat(x[n1 + i])
            a1, b1 = fma(s, u, a1), fma(s, v, b1)
            s = splat(x[n2 + i])
            a2, b2 = fma(s, u, a2), fma(s, v, b2)
            s = splat(x[n3 + i])
            a3, b3 = fma(s, u, a3), fma(s, v, b3)
            s = splat(x[n4 + i])
            a4, b4 = fma(s, u, a4), fma(s, v, b4)
            s = splat(x[n5 + i])
            a5, b5 = fma(s, u, a5), fma(s, v, b5)
            s = splat(x[n6 + i])
            a6, b6 = fma(s, u, a6), fma(s, v, b6)
            s = splat(x[n7 + i])
            a7, b7 = fma(s, u, a7), fma(s, v, b7)
        o, left = to + n * stride, rows - n
        store(out, o, a0)
        store(out, o + 16, b0)
        store(out, o + stride, a1)
        store(out, o + stride + 16, b1)
        store(out, o + 2 * stride, a2)
        store(out, o + 2 * stride + 16, b2)
        store(out, o + 3 * stride, a3)
        store(out, o + 3 * stride + 16, b3)
        if left > 4:
            store(out, o + 4 * stride, a4)
            store(out, o + 4 * stride + 16, b4)
        if left > 5:
            store(out, o + 5 * stride, a5)
            store(out, o + 5 * stride + 16, b5)
        if left > 6:
            store(out, o + 6 * stride, a6)
            store(out, o + 6 * stride + 16, b6)
        if left > 7:
            store(out, o + 7 * stride, a7)
            store(out, o + 7 * stride + 16, b7)


_few_compiled: Final[Any] = numba.njit(cache=True, **exact)(_few_rows)
_eights_compiled: Final[Any] = numba.njit(cache=True, **exact)(_eights)


def _product(x_NI: Any, panels_PIO: Any, bias_PO: Any, out_NO: Any) -> None:
    """x · weight + bias. The arrays are contiguous; panels and bias are filled up with zeros."""
    rows, outputs = out_NO.shape
    x, out, bias = x_NI.reshape(-1), out_NO.reshape(-1), bias_PO.reshape(-1)
    for p in range(outputs // PANEL):
        _eights_compiled(x, rows, panels_PIO, p, bias, out, p * PANEL, outputs)
        _few_compiled(x, rows, panels_PIO, p, bias, out, p * PANEL, outputs)
    rest = outputs % PANEL
    if rest > 0:
        p = outputs // PANEL
        spare = np.empty(rows * PANEL, np.float32)
        _eights_compiled(x, rows, panels_PIO, p, bias, spare, 0, PANEL)
        _few_compiled(x, rows, panels_PIO, p, bias, spare, 0, PANEL)
        for n in range(rows):
            for o in range(rest):
                out_NO[n, p * PANEL + o] = spare[n * PANEL + o]


product: Final[Any] = numba.njit(cache=True, **exact)(_product)
