"""Blocks of the KV cache: reference counts, automatic prefix caching and eviction.

A full block is found by its tokens and the block before it, so that equal beginnings are computed and stored once, whichever
requests they belong to (https://docs.vllm.ai/en/latest/design/prefix_caching/). Full blocks never change. A block that is
still being filled belongs to one sequence; another one that begins with the same tokens gets a copy of them (copy-on-write).
Blocks that no sequence uses keep their contents until their memory is needed, the least recently used first. New weights make
all contents unusable for later requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from trainer.inference.embedded.cache import BLOCK, KVCache

ROOT = 0
"""Number of the empty beginning, before a sequence's first block."""
_CANDIDATES = 64
"""Maximum blocks that are compared for the tokens behind the last full block."""
_CONTIGUOUS = 8
"""So many blocks and more are taken side by side where there is unused memory, because attention reads a range faster."""

Tokens = tuple[int, ...]


class Writer(Protocol):
    """Sequence that fills a block."""

    tokens: list[int]
    cached: int


@dataclass(eq=False, slots=True)
class Block:
    """Physical block `index`. `number` names its contents: it is never used twice."""

    index: int
    number: int
    references: int = 1
    epoch: int = -1
    """Weights under which others find it; -1: they do not."""
    parent: int = ROOT
    """Number of the block before it."""
    start: int = 0
    """Position of its first token."""
    first: int = -1
    """Its first token."""
    tokens: Tokens = ()
    """Tokens whose keys and values it holds, once `writer` is gone."""
    writer: Writer | None = None

    def held(self) -> Items[int]:
        return self.tokens if self.writer is None else self.writer.tokens[self.start : self.writer.cached][:BLOCK]


@dataclass(slots=True)
class Match:
    """Cached beginning of a prompt."""

    blocks: list[Block] = field(default_factory=list)
    """Full blocks."""
    parent: int = ROOT
    """Number of the last of them."""
    tail: Block | None = None
    """Block with the tokens behind them."""
    tail_tokens: int = 0

    @property
    def length(self) -> int:
        return len(self.blocks) * BLOCK + self.tail_tokens


class BlockPool:
    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.used = 0
        """Blocks that have ever been used: the first ones."""
        self.epoch = self._numbers = 0
        self._empty: list[int] = []
        self._mixed = False
        """The empty blocks are to be sorted, so that those taken together are neighbours."""
        self._idle: OrderedDict[int, Block] = OrderedDict()
        """Unreferenced blocks with contents, by index, the least recently used first."""
        self._full: dict[tuple[int, Tokens], Block] = {}
        self._under: dict[tuple[int, int], dict[Block, None]] = {}
        """Blocks by the block before them and their first token."""

    @property
    def free(self) -> int:
        """Blocks that no sequence uses."""
        return self.cache.blocks - self.used + len(self._empty) + len(self._idle)

    def forget(self) -> None:
        """The weights changed: nothing cached is found any more. Running sequences keep their blocks."""
        self.epoch += 1
        self._empty += self._idle
        self._mixed = True
        self._idle, self._full, self._under = OrderedDict(), {}, {}

    def match(self, prompt: Tokens, limit: int) -> Match:
        """The longest cached beginning of `prompt`, at most `limit` tokens."""
        found = Match()
        start = 0
        while start + BLOCK <= limit:
            block = self._full.get((found.parent, prompt[start : start + BLOCK]))
            if block is None:
                break
            found.blocks.append(block)
            found.parent = block.number
            start += BLOCK
        rest = prompt[start : min(start + BLOCK, limit)]
        siblings = self._under.get((found.parent, rest[0]), {}) if rest else {}
        for block in islice(reversed(siblings), _CANDIDATES):
            common = _common(block.held(), rest)
            if common > found.tail_tokens:
                found.tail, found.tail_tokens = block, common
                if common == len(rest):
                    break
        return found

    def share(self, block: Block) -> None:
        """One more sequence reads this block."""
        if block.references == 0:
            del self._idle[block.index]
        block.references += 1

    def take(self, count: int) -> list[Block]:
        """Blocks without contents, side by side where possible. There must be `count` free ones."""
        assert count <= self.free
        unused = self.cache.blocks - self.used
        indices: list[int] = []
        if self._mixed:
            self._empty.sort(reverse=True)
            self._mixed = False
        if count <= len(self._empty) or count < _CONTIGUOUS or count > unused:
            indices = [self._empty.pop() for _ in range(min(count, len(self._empty)))]
        fresh = min(count - len(indices), unused)
        indices += range(self.used, self.used + fresh)
        self.used += fresh
        while len(indices) < count:
            index, block = self._idle.popitem(last=False)
            self._unlist(block)
            indices.append(index)
        self._numbers += count
        return [Block(index, self._numbers - n) for n, index in enumerate(sorted(indices))]

    def open(self, block: Block, parent: int, start: int, writer: Writer) -> None:
        """`writer` fills this block behind `parent`; others find what it holds so far."""
        block.parent, block.start, block.first = parent, start, writer.tokens[start]
        block.writer, block.epoch = writer, self.epoch
        self._under.setdefault((parent, block.first), {})[block] = None

    def fill(self, block: Block, tokens: Tokens) -> Block:
        """The block is full. Returns the block that holds these contents: another one if they had been cached before,
        which then replaces this one."""
        block.tokens, block.writer = tokens, None
        there = self._full.setdefault((block.parent, tokens), block)
        if there is not block:
            self.share(there)
            self._unlist(block)
            block.epoch = -1
            self.release([block])
        return there

    def adopt(self, block: Block) -> bool:
        """Continue an idle block that is not full, instead of copying it. False: others use it."""
        if block.references or len(block.tokens) == BLOCK:
            return False
        self.share(block)
        self._unlist(block)
        return True

    def release(self, blocks: Items[Block]) -> None:
        """A sequence ended. What later requests may find stays, its last block to be evicted first."""
        for block in reversed(blocks):
            block.references -= 1
            if block.references:
                continue
            if block.writer is not None:
                block.tokens, block.writer = tuple(block.held()), None
            if block.epoch == self.epoch and block.tokens:
                self._idle[block.index] = block
            else:
                if block.epoch == self.epoch:
                    self._unlist(block)
                self._empty.append(block.index)

    def _unlist(self, block: Block) -> None:
        if self._full.get((block.parent, block.tokens)) is block:
            del self._full[block.parent, block.tokens]
        key = block.parent, block.first
        siblings = self._under.get(key)
        if siblings is not None:
            siblings.pop(block, None)
            if not siblings:
                del self._under[key]


def _common(a: Items[int], b: Items[int]) -> int:
    count = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        count += 1
    return count
