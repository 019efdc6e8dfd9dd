"""The inner loops of the engine that are worth compiling, and whether this machine has them compiled.

Without a compiler (numba, which brings its own) everything works by torch's operators, slower.
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
    """What `numba_loops` has; see there. Arrays are contiguous and belong to the caller."""

    def norm(self, x_NC: Floats, weight_C: Floats, eps: np.float32, out_NC: Floats) -> None: ...

    def add_norm(self, x_NC: Floats, delta_NC: Floats, weight_C: Floats, eps: np.float32, out_NC: Floats) -> None: ...

    def gate(self, gate_up_NF: Floats, out_NF: Floats) -> None: ...

    def rotate(
        self,
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

    def attend(
        self,
        q_NE: Floats,
        rows_RE: Floats,
        first_N: Ints,
        lengths_N: Ints,
        shared_N: Ints,
        values_after: int,
        scale: np.float32,
        size: int,
        out_NE: Floats,
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
    """None where numba is not installed."""
    try:
        from trainer.inference.embedded import numba_loops
    except (ImportError, RuntimeError) as error:  # RuntimeError: numba finds no folder to keep compiled code in
        log.info("the engine runs without compiled loops, which is slower: %s", error)
        return None
    return cast(Loops, numba_loops)


@cache
def prepare() -> None:
    """Loads (on a new machine: compiles) the loops now; the first request would wait seconds for it."""
    loops = compiled_loops()
    if loops is None:
        return
    one, wide = np.ones((1, 4), np.float32), np.ones((1, 12), np.float32)
    eps, at, lengths = np.float32(1e-6), np.zeros(1, np.int64), np.ones(1, np.int64)
    rows = np.zeros((2, 4), np.float32)
    loops.norm(one, one[0], eps, np.empty_like(one))
    loops.add_norm(np.ones((1, 4), np.float32), one, one[0], eps, np.empty_like(one))
    loops.gate(np.ones((1, 8), np.float32), np.empty_like(one))
    loops.rotate(wide, one, one, at, True, one[0], one[0], eps, 1, rows, at, 1, np.empty_like(one))
    loops.attend(one, rows, at, lengths, at, 1, eps, 4, np.empty_like(one))
    loops.draw(one, np.ones(1, np.float32), np.zeros(1), at.copy(), np.empty(1))
