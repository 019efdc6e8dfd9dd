"""Loops of the embedded engine, compiled by numba where it is installed; `loops.py` is their protocol and finds them."""

from trainer.inference.embedded.kernels.loops import Floats, Loops, compiled_loops

__all__ = ["Floats", "Loops", "compiled_loops"]
