"""Paged KV cache of one deployment: storage for blocks of `BLOCK` tokens. `blocks.py` decides what lies in them.

Layout [layers, 2 (keys, values), blocks * BLOCK, kv_heads, head_dim]: neighbouring blocks are contiguous in each layer, so
attention reads a sequence in neighbouring blocks as one range. The CPU commits memory on first write, one huge page at a
time (small pages are faster to get and slower to read); `prepare` does this before a request has to wait for it. Other
devices allocate all of it at once. The experts of cached tokens are only reported, never computed with, so they stay on
the CPU.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from trainer.inference.embedded.devices import CPU
from trainer.routed_experts import Experts

BLOCK = 16
"""Tokens of a block. The compiled attention reads whole vectors of 16 keys."""
AHEAD_BYTES = 32 << 20
"""Memory of one deployment that is prepared for future sequences."""
_PIECE_BYTES = 256 << 10
"""Memory of one layer that is prepared at a time: a request waits for one piece at most."""

Blocks = npt.NDArray[np.int64]
"""Physical blocks of a sequence, in the order of its tokens."""


class KVCache:
    def __init__(
        self,
        blocks: int,
        layers: int,
        kv_heads: int,
        head_dim: int,
        routed: tuple[int, int] | None = None,
        device: torch.device = CPU,
    ) -> None:
        """`routed`: MoE layers and experts per token, for mixture-of-experts policies."""
        self.blocks = blocks
        self.layers = layers
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.tokens = blocks * BLOCK
        self.layer_rows = 2 * self.tokens
        sizes = (layers, 2, self.tokens, kv_heads, head_dim)
        # numpy asks the kernel for zero pages; torch.zeros would write, and so commit, all of them.
        whole = np.zeros(sizes if device == CPU else (0, *sizes[1:]), np.float32)
        self.data = torch.from_numpy(whole) if device == CPU else torch.zeros(sizes, device=device)
        self.rows = whole.reshape(-1, kv_heads * head_dim)
        """Rows of one token's keys (or values) in one layer, for compiled loops, which exist on the CPU only."""
        self.experts: Experts | None = np.zeros((self.tokens, *routed), np.uint16) if routed else None
        """Routed experts of each cached token; they belong to its keys and values."""
        self._rows = self.data.view(-1, kv_heads * head_dim)
        self._block_bytes = BLOCK * layers * 2 * kv_heads * head_dim * self.data.element_size()
        if self.experts is not None:
            self._block_bytes += BLOCK * self.experts[0].nbytes
        self.ahead = AHEAD_BYTES // self._block_bytes if device == CPU else 0
        """Blocks prepared in advance."""
        self._ready = self._layer = 0
        """Blocks whose memory is committed, and layers of the next piece."""

    @property
    def bytes(self) -> int:
        return self.blocks * self._block_bytes

    def prepare(self, used: int) -> bool:
        """Commit memory for one layer of the next unused blocks; the first `used` have been used. False: all is committed."""
        if used > self._ready:
            self._ready, self._layer = used, 0
        until = min(used + self.ahead, self.blocks)
        if self._ready >= until:
            return False
        piece = max(1, _PIECE_BYTES * self.layers // self._block_bytes)
        first, last = self._ready * BLOCK, min(self._ready + piece, self.blocks) * BLOCK
        self.data[self._layer, :, first:last].zero_()  # other threads go on meanwhile
        if self._layer == 0 and self.experts is not None:
            self.experts[first:last] = 0
        self._layer += 1
        if self._layer == self.layers:
            self._ready, self._layer = last // BLOCK, 0
        return True

    def write(self, layer: int, rows_N: torch.Tensor, keys_NE: torch.Tensor, values_NE: torch.Tensor) -> None:
        """Store keys and values; `rows_N` are the tokens' rows in layer 0 (block * BLOCK + offset)."""
        at = rows_N + layer * self.layer_rows
        self._rows.index_copy_(0, at, keys_NE)
        self._rows.index_copy_(0, at + self.tokens, values_NE)

    def read(self, layer: int, blocks: Blocks, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [length, kv_heads, head_dim] of the first tokens of a sequence: views where its blocks are
        neighbours, else copies."""
        first, count = int(blocks[0]), -(-length // BLOCK)
        if int(blocks[count - 1]) - first == count - 1 and (np.diff(blocks[:count]) == 1).all():
            both = self.data[layer, :, first * BLOCK : first * BLOCK + length]
        else:
            at = torch.from_numpy(positions(blocks[None, :count])[0, :length]).to(self.data.device)
            both = self.data[layer].index_select(1, at)
        return both[0], both[1]

    def gather(self, layer: int, rows_RT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [R, T, kv_heads, head_dim] of several sequences, copied."""
        both = self.data[layer].index_select(1, rows_RT.flatten())
        keys, values = both.view(2, *rows_RT.shape, self.kv_heads, self.head_dim)
        return keys, values

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy the first `count` tokens of a block into another one."""
        a, b = source * BLOCK, target * BLOCK
        self.data[:, :, b : b + count] = self.data[:, :, a : a + count]
        if self.experts is not None:
            self.experts[b : b + count] = self.experts[a : a + count]


def positions(blocks_RB: Blocks) -> Blocks:
    """Rows [R, B * BLOCK] of all tokens of the blocks, in layer 0."""
    return (blocks_RB[:, :, None] * BLOCK + np.arange(BLOCK)).reshape(len(blocks_RB), -1)


def block_bytes(layers: int, kv_heads: int, head_dim: int, routed: tuple[int, int] | None) -> int:
    """Memory of one block in a cache of these sizes."""
    per_token = layers * 2 * kv_heads * head_dim * 4 + (routed[0] * routed[1] * 2 if routed else 0)
    return per_token * BLOCK
