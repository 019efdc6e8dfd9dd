"""Garbage collection of a server process: what stays is left out of it, so that a collection does not stop all requests."""

from __future__ import annotations

import gc
import threading

_freezing = threading.Lock()


def freeze_heap() -> None:
    """Exclude all objects that exist now from later collections.

    A full collection holds the interpreter's lock for about 0.7 µs an object: 0.2 s with a tokenizer's libraries, and
    every page waits. Call this after a start, and after each load of a large library. Costs one such collection.
    """
    with _freezing:
        gc.collect()
        gc.freeze()
