"""All loops compiled by numba, as one implementation of `Loops`. Import fails where numba is not installed."""

from trainer.weights.codec.numba_bitmaps import decode_bitmap, encode_bitmap
from trainer.weights.codec.numba_loops import join, split

__all__ = ["decode_bitmap", "encode_bitmap", "join", "split"]
