"""Packing documents into rows of one length, so that no computation goes into padding and none attends to another.

Documents of a pool are cut at the row's length and placed best-fit: longest first, each into the fullest row that still
holds it. A document's first token has no loss: nothing of its own precedes it.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterator
from itertools import islice

from trainer.learning.supervised import Example

POOL = 256
"""Documents that are placed together."""


def pack(examples: Iterator[Example], *, length: int, seed: int, pool: int = POOL) -> Iterator[Example]:
    """Rows of at most `length` tokens in seeded order. Endless if its input is."""
    order = random.Random(f"pack:{seed}")
    while True:
        drawn = [piece for example in islice(examples, pool) for piece in cut(example, length)]
        if not drawn:
            return
        rows = best_fit(drawn, length)
        order.shuffle(rows)
        yield from (join(row) for row in rows)


def cut(example: Example, length: int) -> list[Example]:
    """Pieces of at most `length` tokens; each after the first begins anew."""
    return [
        Example(example.ids[at : at + length], [0.0, *example.weights[at + 1 : at + length]])
        for at in range(0, len(example.ids), length)
    ]


def best_fit(pieces: list[Example], length: int) -> list[list[Example]]:
    rows: list[list[Example]] = []
    room: list[tuple[int, int]] = []
    """(tokens left, row), ascending."""
    for piece in sorted(pieces, key=lambda piece: len(piece.ids), reverse=True):
        at = bisect.bisect_left(room, (len(piece.ids), -1))
        if at == len(room):
            rows.append([])
            left, row = length, len(rows) - 1
        else:
            left, row = room.pop(at)
        rows[row].append(piece)
        bisect.insort(room, (left - len(piece.ids), row))
    return rows


def join(row: list[Example]) -> Example:
    ids: list[int] = []
    weights: list[float] = []
    starts = []
    for piece in row:
        starts.append(len(ids))
        ids += piece.ids
        weights += [0.0, *piece.weights[1:]]
    return Example(ids, weights, tuple(starts))
