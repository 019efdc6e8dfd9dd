"""All loops compiled by numba, as one implementation of `Loops`. Import fails where numba is not installed."""

from trainer.weights.codec.numba_loops import join, split
from trainer.weights.codec.numba_parted import part, unite

__all__ = ["join", "part", "split", "unite"]
