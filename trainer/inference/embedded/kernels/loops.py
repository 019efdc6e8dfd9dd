"""The engine's compiled inner loops, and their availability on this machine.

Without a compiler (numba, which brings its own) torch's operators do the same work, more slowly.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Loops(Protocol):
    """Interface of `numba_loops`, which documents it. Arrays are contiguous and belong to the caller."""

    PANEL: int
    """Outputs per weight panel."""

    def product(self, x_NI: Floats, weight_PIO: Floats, bias_PO: Floats, out_NO: Floats) -> None: ...

    def norm(self, x_NC: Floats, weight_C: Floats, eps: np.float32, out_NC: Floats) -> None: ...

    def enter(
        self,
        normed_NC: Floats,
        weight_PIO: Floats,
        bias_PO: Floats,
        qkv_NE: Floats,
        cos_TD: Floats,
        sin_TD: Floats,
        positions_N: Ints,
        normed: bool,
        query_norm_D: Floats,
        key_norm_D: Floats,
        eps: np.float32,
        kv_heads: int,
        rows_RE: Floats,
        keys_N: Ints,
        values_after: int,
        q_NE: Floats,
    ) -> None: ...

    def leave(
        self,
        attended_NE: Floats,
        out_PIO: Floats,
        out_bias_PO: Floats,
        x_NC: Floats,
        delta_NC: Floats,
        norm_mlp_C: Floats,
        eps: np.float32,
        normed_NC: Floats,
        gate_up_PIO: Floats,
        gate_up_bias_PO: Floats,
        gate_up_NF: Floats,
        gated_NF: Floats,
        down_PIO: Floats,
        down_bias_PO: Floats,
        norm_end_C: Floats,
    ) -> None: ...

    def attend(
        self,
        q_NE: Floats,
        rows_RE: Floats,
        tables_SB: Ints,
        table_N: Ints,
        base: int,
        lengths_N: Ints,
        shared_N: Ints,
        values_after: int,
        scale: np.float32,
        size: int,
        out_NE: Floats,
    ) -> None: ...

    def fold(
        self, scores_RT: Floats, top_R: Floats, sum_R: Floats, out_RD: Floats, scale: np.float32, spare: Floats
    ) -> None: ...

    def draw(
        self,
        logits_RV: Floats,
        temperatures_R: Floats,
        uniforms_R: npt.NDArray[np.float64],
        tokens_R: Ints,
        logprobs_R: npt.NDArray[np.float64],
    ) -> None: ...


@cache
def compiled_loops() -> Loops | None:
    """The compiled loops; None where numba is not installed."""
    try:
        from trainer.inference.embedded.kernels import numba_loops
    except (ImportError, RuntimeError) as error:  # RuntimeError: numba finds no folder to keep compiled code in
        log.info("the engine runs without compiled loops, which is slower: %s", error)
        return None
    return cast(Loops, numba_loops)


@cache
def prepare() -> None:
    """Load the loops now (compile them on a new machine), so that the first request does not wait seconds for it."""
    loops = compiled_loops()
    if loops is None:
        return

    def new(*sizes: int) -> Floats:
        return np.ones(sizes, np.float32)

    eps, at, lengths, rows = np.float32(1e-6), np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros((2, 4), np.float32)
    one, weight, bias, none = new(1, 4), new(1, 4, loops.PANEL), new(1, loops.PANEL), new(4)
    loops.norm(one, none, eps, new(1, 4))
    loops.product(one, weight, bias, new(1, 4))
    loops.enter(one, weight, bias, new(1, 12), one, one, at, True, none, none, eps, 1, rows, at, 1, new(1, 4))
    gate_up, gated = new(1, 8), new(1, 4)
    down = (weight, bias)
    loops.leave(one, *down, new(1, 4), new(1, 4), none, eps, new(1, 4), *down, gate_up, gated, *down, none)
    loops.attend(one, rows, at[None], at, 0, lengths, at, 1, eps, 4, new(1, 4))
    loops.fold(new(1, 4), new(1), new(1), one, eps, new(16))
    loops.draw(one, np.ones(1, np.float32), np.zeros(1), at.copy(), np.empty(1))
