"""Products with weights, compiled by numba: as fast as the libraries' for long prompts, faster for the rows of a decode step.

Each number is one sum over the inputs in their order, so a row's bits do not depend on which rows are beside it.
Shape letters as in `model.py`; I inputs, O outputs, P panels of 16 outputs.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from trainer.inference.embedded.kernels.vectors import fma, load, prefetch, spread, store

BUILT_ON = "261fa0d34a14b7f6"
"""As in `numba_loops.py`."""
PANEL = 16
"""Outputs that are computed at a time, for six rows: twelve of the sixteen registers of AVX2 hold sums, two hold weights."""
_AT_ONCE = 384
"""Rows whose inputs stay in the cache while all panels pass."""

exact: Final[dict[str, Any]] = {
    "nogil": True,
    "boundscheck": False,
    "fastmath": {"contract", "nsz", "arcp"},
    "error_model": "numpy",
}
"""Sums keep their order."""


def _six(x: Any, n: Any, rows: Any, panels_PIO: Any, p: Any, bias: Any, out: Any, to: Any, stride: Any, soon: Any) -> None:  # fmt: skip  # noqa: E501
    """Rows `n` to `n` + 5. Those that are not there are computed as the last one, and dropped.

    Weights come from memory, once a step: a quarter of the next panel, from `soon` on, is on its way while this one is used.
    """
    inputs, last = panels_PIO.shape[1], rows - 1
    n0, n1, n2 = n * inputs, min(n + 1, last) * inputs, min(n + 2, last) * inputs
    n3, n4, n5 = min(n + 3, last) * inputs, min(n + 4, last) * inputs, min(n + 5, last) * inputs
    a0 = a1 = a2 = a3 = a4 = a5 = load(bias, p * PANEL)
    at = p * inputs * PANEL
    for i in range(inputs):
        prefetch(panels_PIO, soon + 4 * i)
        w = load(panels_PIO, at)
        at += PANEL
        a0, a1, a2 = fma(spread(x, n0 + i), w, a0), fma(spread(x, n1 + i), w, a1), fma(spread(x, n2 + i), w, a2)
        a3, a4, a5 = fma(spread(x, n3 + i), w, a3), fma(spread(x, n4 + i), w, a4), fma(spread(x, n5 + i), w, a5)
    o, left = to + n * stride, rows - n
    store(out, o, a0)
    store(out, o + stride, a1)
    store(out, o + 2 * stride, a2)
    store(out, o + 3 * stride, a3)
    store(out, o + 4 * stride, a4)
    if left > 5:
        store(out, o + 5 * stride, a5)


def _four(x: Any, n: Any, rows: Any, panels_PIO: Any, p: Any, bias: Any, out: Any, to: Any, stride: Any, soon: Any) -> None:  # fmt: skip  # noqa: E501
    """As `_six`, for four rows."""
    inputs, last = panels_PIO.shape[1], rows - 1
    n0, n1 = n * inputs, min(n + 1, last) * inputs
    n2, n3 = min(n + 2, last) * inputs, min(n + 3, last) * inputs
    a0 = a1 = a2 = a3 = load(bias, p * PANEL)
    at = p * inputs * PANEL
    for i in range(inputs):
        prefetch(panels_PIO, soon + 4 * i)
        w = load(panels_PIO, at)
        at += PANEL
        a0, a1 = fma(spread(x, n0 + i), w, a0), fma(spread(x, n1 + i), w, a1)
        a2, a3 = fma(spread(x, n2 + i), w, a2), fma(spread(x, n3 + i), w, a3)
    o, left = to + n * stride, rows - n
    store(out, o, a0)
    if left > 1:
        store(out, o + stride, a1)
    if left > 2:
        store(out, o + 2 * stride, a2)
    if left > 3:
        store(out, o + 3 * stride, a3)


def _one(x: Any, panels_PIO: Any, p: Any, bias: Any, out: Any) -> None:
    """A single row, two panels at a time: memory sends two streams faster than one."""
    inputs = panels_PIO.shape[1]
    a, b = load(bias, p * PANEL), load(bias, (p + 1) * PANEL)
    at, far = p * inputs * PANEL, inputs * PANEL
    for i in range(inputs):
        s = spread(x, i)
        a, b = fma(s, load(panels_PIO, at), a), fma(s, load(panels_PIO, at + far), b)
        at += PANEL
    store(out, p * PANEL, a)
    store(out, (p + 1) * PANEL, b)


_one_compiled: Final[Any] = numba.njit(cache=True, **exact)(_one)
_six_compiled: Final[Any] = numba.njit(cache=True, **exact)(_six)
_four_compiled: Final[Any] = numba.njit(cache=True, **exact)(_four)


def _panel(x: Any, rows: Any, panels_PIO: Any, p: Any, bias: Any, out: Any, to: Any, stride: Any) -> None:
    """The outputs of one panel, for all rows: sixes, and fours where they leave less to drop."""
    soon, quarter = (p + 1) * panels_PIO.shape[1] * PANEL, panels_PIO.shape[1] * 4
    n = turn = 0
    while n < rows:
        ahead = soon + turn % 4 * quarter
        if rows - n <= 4 or rows - n == 8:
            _four_compiled(x, n, rows, panels_PIO, p, bias, out, to, stride, ahead)
            n += 4
        else:
            _six_compiled(x, n, rows, panels_PIO, p, bias, out, to, stride, ahead)
            n += 6
        turn += 1


_panel_compiled: Final[Any] = numba.njit(cache=True, **exact)(_panel)


def _product(x_NI: Any, panels_PIO: Any, bias_PO: Any, out_NO: Any) -> None:
    """x · weight + bias. The arrays are contiguous; panels and bias are filled up with zeros."""
    outputs, bias = out_NO.shape[1], bias_PO.reshape(-1)
    whole, rest = outputs // PANEL, outputs % PANEL
    for begin in range(0, len(out_NO), _AT_ONCE):
        end = min(begin + _AT_ONCE, len(out_NO))
        x, out, rows = x_NI[begin:end].reshape(-1), out_NO[begin:end].reshape(-1), end - begin
        done = whole - whole % 2 if rows == 1 else 0
        for p in range(0, done, 2):
            _one_compiled(x, panels_PIO, p, bias, out)
        for p in range(done, whole):
            _panel_compiled(x, rows, panels_PIO, p, bias, out, p * PANEL, outputs)
        if rest > 0:
            spare = np.empty(rows * PANEL, np.float32)
            _panel_compiled(x, rows, panels_PIO, whole, bias, spare, 0, PANEL)
            for n in range(rows):
                for o in range(rest):
                    out_NO[begin + n, whole * PANEL + o] = spare[n * PANEL + o]


product: Final[Any] = numba.njit(cache=True, **exact)(_product)
