"""All loops compiled by numba, as one implementation of `Loops`. Import fails where numba is not installed."""

from trainer.weights.codec.numba_bitmaps import part, unite
from trainer.weights.codec.numba_loops import join, split

__all__ = ["join", "part", "split", "unite"]
