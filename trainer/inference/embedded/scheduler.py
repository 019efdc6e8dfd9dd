"""Sequences of a deployment and their blocks: admission, growth, preemption, and which rows share a beginning."""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

import numpy as np

from trainer.inference.embedded.blocks import BlockPool, Match
from trainer.inference.embedded.cache import BLOCK, KVCache
from trainer.inference.embedded.request import Job, Sequence


class Scheduler:
    def __init__(self, cache: KVCache, max_num_seqs: int, length: int) -> None:
        """`length`: maximum tokens of one sequence; the cache holds at least as many."""
        self.cache = cache
        self.length = length
        self.max_num_seqs = max_num_seqs
        self.pool = BlockPool(cache)
        self.running: list[Sequence] = []
        """In the order of their admission."""
        self.tables_SB = np.zeros((max_num_seqs, -(-length // BLOCK)), np.int64)
        self._tables = list(range(max_num_seqs))[::-1]
        """Rows of them that are free."""
        self._prefilling: dict[tuple[int, tuple[int, ...]], Sequence] = {}
        """Running prefills, by the contents that they compute next."""
        self._ordered: list[Sequence] | None = None

    def forget(self) -> None:
        """The weights changed."""
        self.pool.forget()
        self._prefilling.clear()

    def admit(self, job: Job) -> Sequence | Literal["room", "prefix"]:
        """Start a job, reusing its cached beginning. Else what it waits for: room, or another request that is computing
        the same beginning."""
        if not self._tables:
            return "room"
        tokens = job.tokens
        match = self.pool.match(tokens, len(tokens) - 1)
        if _contents(match.parent, tokens, len(match.blocks)) in self._prefilling:
            return "prefix"
        missing = _blocks(len(tokens)) - len(match.blocks)
        idle = sum(block.references == 0 for block in match.blocks)
        # One more for each running sequence, which might be preempted otherwise.
        if self.running and missing + len(self.running) + 1 > self.pool.free - idle:
            return "room"
        sequence = Sequence(self._tables.pop(), list(tokens), job, self.pool.epoch, match.parent, len(match.blocks))
        self._begin(sequence, match)
        self.running.append(sequence)
        self._ordered = None
        return sequence

    def _begin(self, sequence: Sequence, match: Match) -> None:
        """Blocks of a new sequence: those of its cached beginning, and empty ones for the rest of its tokens."""
        pool, tail = self.pool, match.tail
        sequence.cached = match.length
        for block in match.blocks:
            pool.share(block)
        blocks = sequence.blocks = list(match.blocks)
        adopted = tail is not None and pool.adopt(tail)
        if tail is not None and not adopted:
            pool.share(tail)  # lest it is taken for its own copy
        if tail is not None and adopted:
            blocks.append(tail)
        missing = _blocks(len(sequence.tokens)) - len(blocks)
        if tail is not None and not adopted and missing > pool.free:  # alone in a small cache
            pool.release([tail])
            tail = None
            sequence.cached -= match.tail_tokens
        blocks += pool.take(missing)
        if tail is not None and not adopted:
            self.cache.copy(tail.index, blocks[sequence.filled].index, match.tail_tokens)
            pool.release([tail])
        self.tables_SB[sequence.table, : len(blocks)] = [block.index for block in blocks]
        self._open(sequence)
        self._announce(sequence)

    def reserve(self, sequence: Sequence, length: int) -> bool:
        """Give the sequence blocks for `length` tokens. False: there are none free."""
        there = len(sequence.blocks)
        missing = _blocks(length) - there
        if missing <= 0:
            return True
        if missing > self.pool.free:
            return False
        sequence.blocks += self.pool.take(missing)
        self.tables_SB[sequence.table, there : there + missing] = [block.index for block in sequence.blocks[there:]]
        if there == sequence.filled:
            self._open(sequence)
        return True

    def advance(self, sequence: Sequence) -> None:
        """Publish the blocks that the last step filled."""
        before = sequence.filled
        while sequence.cached >= (sequence.filled + 1) * BLOCK:
            start = sequence.filled * BLOCK
            if sequence.epoch == self.pool.epoch:
                mine = sequence.blocks[sequence.filled]
                there = self.pool.fill(mine, tuple(sequence.tokens[start : start + BLOCK]))
                if there is not mine:
                    sequence.blocks[sequence.filled] = there
                    self.tables_SB[sequence.table, sequence.filled] = there.index
                    self._ordered = None
                sequence.parent = there.number
            sequence.filled += 1
            self._open(sequence)
        if sequence.computes is not None and (sequence.filled > before or sequence.pending <= 1):
            self._announce(sequence)

    def _open(self, sequence: Sequence) -> None:
        """Let others find what the sequence writes to its next block."""
        if sequence.filled < len(sequence.blocks) and sequence.epoch == self.pool.epoch:
            block = sequence.blocks[sequence.filled]
            self.pool.open(block, sequence.parent, sequence.filled * BLOCK, sequence)

    def _announce(self, sequence: Sequence) -> None:
        """Let others wait for what the sequence's prefill computes next."""
        if sequence.computes is not None and self._prefilling.get(sequence.computes) is sequence:
            del self._prefilling[sequence.computes]
        sequence.computes = None
        if sequence.pending > 1 and sequence.epoch == self.pool.epoch:
            contents = _contents(sequence.parent, tuple(sequence.tokens), sequence.filled)
            if self._prefilling.setdefault(contents, sequence) is sequence:
                sequence.computes = contents

    def release(self, sequence: Sequence) -> None:
        """The job ended or has to wait; what it computed stays cached until the memory is needed."""
        self.running.remove(sequence)
        sequence.finished = True
        if sequence.computes is not None and self._prefilling.get(sequence.computes) is sequence:
            del self._prefilling[sequence.computes]
        self.pool.release(sequence.blocks)
        self._tables.append(sequence.table)
        self._ordered = None

    def ordered(self) -> list[Sequence]:
        """Running sequences, those with a common beginning side by side."""
        if self._ordered is None:
            for sequence in self.running:
                sequence.shared = bisect_left(sequence.blocks, True, hi=sequence.filled, key=lambda b: b.references < 2)
            self._ordered = sorted(self.running, key=_group)
        return self._ordered

    def prepare(self) -> bool:
        """Prepare part of the memory that is used next. Returns False when nothing is left."""
        return self.cache.prepare(self.pool.used)


def shared_tokens(rows: list[Sequence]) -> list[int]:
    """Number of leading tokens that each row shares with the row before it: all rows of a prefix group share the same."""
    groups = [-1, *map(_group, rows)]
    return [
        row.shared * BLOCK if group >= 0 and group == before else 0
        for row, group, before in zip(rows, groups[1:], groups, strict=False)
    ]


def _group(sequence: Sequence) -> int:
    """The last block that it shares with others; -1 without one."""
    return sequence.blocks[sequence.shared - 1].index if sequence.shared else -1


def _contents(parent: int, tokens: tuple[int, ...], blocks: int) -> tuple[int, tuple[int, ...]]:
    return parent, tokens[blocks * BLOCK : (blocks + 1) * BLOCK]


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK)
