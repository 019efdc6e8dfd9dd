"""Groups words into blocks for coding, and processes blocks in threads.

Small tensors share a block, so that one header serves many; a large tensor is cut into several blocks, so that cores
share it. The layout follows from order, dtypes and sizes of the pieces alone, so it needs no space on the wire.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from trainer.weights.codec import Bytes

BLOCK_WORDS = 1 << 23
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Span:
    """Words `start` to `stop` of piece number `piece`."""

    piece: int
    start: int
    stop: int


@dataclass(frozen=True)
class Block:
    dtype: str
    spans: tuple[Span, ...]


def layout(pieces: Sequence[tuple[str, int]]) -> list[Block]:
    """Blocks over pieces of (dtype, words)."""
    blocks: list[Block] = []
    for dtype in dict.fromkeys(dtype for dtype, _ in pieces):
        spans: list[Span] = []
        room = BLOCK_WORDS
        for piece, (of, words) in enumerate(pieces):
            at = 0
            while of == dtype and at < words:
                stop = min(words, at + room)
                spans.append(Span(piece, at, stop))
                room -= stop - at
                at = stop
                if not room:
                    blocks.append(Block(dtype, tuple(spans)))
                    spans, room = [], BLOCK_WORDS
        if spans:
            blocks.append(Block(dtype, tuple(spans)))
    return blocks


def gather(block: Block, pieces: Sequence[Bytes], size: int) -> Bytes:
    """Bytes of a block; a view where they are contiguous already."""
    parts = [pieces[span.piece][span.start * size : span.stop * size] for span in block.spans]
    # The compiled loops read eight bytes at a time.
    whole = len(parts) == 1 and parts[0].ctypes.data % 8 == 0
    return parts[0] if whole else np.concatenate(parts)


def scatter(block: Block, data: Bytes, pieces: Sequence[Bytes], size: int) -> None:
    at = 0
    for span in block.spans:
        stop = at + (span.stop - span.start) * size
        target = pieces[span.piece][span.start * size : span.stop * size]
        if target.ctypes.data != data[at:stop].ctypes.data:
            target[:] = data[at:stop]
        at = stop


def in_threads(work: Callable[[T], R], items: Iterable[T], threads: int | None = None) -> list[R]:
    """Apply `work` to each item concurrently; the slow operations in it release the interpreter's lock."""
    todo = list(items)
    threads = min(threads or len(os.sched_getaffinity(0)), len(todo))
    if threads <= 1:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, todo))
