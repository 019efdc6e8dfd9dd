"""Attention of one packed batch over the cache: planned once per step, computed in each layer.

Single tokens (decode rows, short chunks) use compiled loops where available: each reads exactly the keys that it may
see, and a
prefix shared by neighbouring rows is read once for all of them. Without loops, decode rows are one call over a range of
slots,
padded to the longest. Long chunks are matrix products. Shape letters as in `model.py`.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from trainer.inference.embedded.batch import Batch, Chunk
from trainer.inference.embedded.cache import KVCache
from trainer.inference.embedded.kernels.loops import Loops

SHORT = 16
"""Maximum length of a chunk whose tokens are processed one by one."""


class Attention:
    def __init__(self, batch: Batch, cache: KVCache, heads: int, loops: Loops | None) -> None:
        self.batch, self.cache, self.heads, self.loops = batch, cache, heads, loops
        self.rows = len(batch.decode_slots)
        """Number of packed tokens outside of chunks."""
        chunks = list(batch.chunks)
        if loops is None:
            self.slots, self.mask = _decode_mask(batch)
        else:
            shared = list(batch.decode_shared)
            while chunks and chunks[0].count <= SHORT:
                chunk = chunks.pop(0)
                self.rows += chunk.count
                shared += [0] + [chunk.start] * (chunk.count - 1)
            self.shared_N = np.array(shared, np.int64)
            self.first_N = batch.slots_N.numpy()[: self.rows] * cache.slot_rows
            self.lengths_N = batch.positions_N.numpy()[: self.rows] + 1
        self.chunks = [(chunk, _chunk_mask(chunk, batch.positions_N.device)) for chunk in chunks]

    def __call__(self, layer: int, q_NE: torch.Tensor, scale: float, out_NE: torch.Tensor) -> torch.Tensor:
        """Fill and return `out_NE`, [N, H * D]. The cache must hold the batch's keys and values."""
        if self.rows and self.loops is not None:
            self.loops.attend(
                q_NE[: self.rows].numpy(),
                self.cache.rows,
                self.first_N + layer * self.cache.layer_rows,
                self.lengths_N,
                self.shared_N,
                self.cache.length,
                np.float32(scale),
                self.cache.head_dim,
                out_NE[: self.rows].numpy(),
            )
        elif self.rows:
            out_NE[: self.rows] = self._decode(layer, q_NE[: self.rows], scale)
        for chunk, mask in self.chunks:
            span = slice(chunk.offset, chunk.offset + chunk.count)
            q = q_NE[span].view(chunk.count, self.heads, -1).transpose(0, 1)[None]
            keys, values = self.cache.read(layer, slice(chunk.slot, chunk.slot + 1), chunk.start + chunk.count)
            out = F.scaled_dot_product_attention(
                q,
                keys,
                values,
                attn_mask=mask,
                is_causal=mask is None and chunk.count > 1,
                scale=scale,
                enable_gqa=self.heads > self.cache.kv_heads,
            )
            out_NE[span].view(chunk.count, self.heads, -1).copy_(out[0].transpose(0, 1))
        return out_NE

    def _decode(self, layer: int, q_RE: torch.Tensor, scale: float) -> torch.Tensor:
        kv_heads, rows = self.cache.kv_heads, self.rows
        q = q_RE.view(rows, kv_heads, self.heads // kv_heads, -1)  # query heads as query rows
        width = self.batch.decode_slots[-1] + 1
        if width != rows:  # slots between the rows belong to idle sessions; they are computed and dropped
            spread = q.new_zeros(width, *q.shape[1:])
            spread[self.slots] = q
            q = spread
        keys, values = self.cache.read(layer, slice(0, width), self.batch.decode_length)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask, scale=scale)
        return (out if width == rows else out[self.slots]).reshape(rows, -1)


def _decode_mask(batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Slots of the decode rows, and the mask over their range: fp32 and additive, so that no layer converts it."""
    device = batch.positions_N.device
    slots = torch.tensor(batch.decode_slots, dtype=torch.long, device=device)
    if not batch.decode_slots:
        return slots, None
    width, rows = batch.decode_slots[-1] + 1, len(batch.decode_slots)
    last = torch.zeros(width, dtype=torch.long, device=device)
    last[slots] = batch.positions_N[:rows]
    visible = torch.arange(batch.decode_length, device=device)[None] <= last[:, None]
    mask = torch.zeros(visible.shape, device=device).masked_fill_(~visible, float("-inf"))
    return slots, mask[:, None, None]


def _chunk_mask(chunk: Chunk, device: torch.device) -> torch.Tensor | None:
    if chunk.start == 0 or chunk.count == 1:
        return None
    total = chunk.start + chunk.count
    hidden = torch.ones(chunk.count, total, dtype=torch.bool, device=device).triu_(chunk.start + 1)
    return torch.zeros(chunk.count, total, device=device).masked_fill_(hidden, float("-inf"))
