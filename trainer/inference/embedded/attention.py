"""Attention of one packed batch over the paged cache: planned once per step, computed in each layer.

Single tokens (decode rows, short chunks) use compiled loops where available: each reads exactly the keys that it may see, in
whichever blocks they lie, and a prefix shared by neighbouring rows is read once for all of them. Without loops, decode rows are
one call over their gathered blocks, padded to the longest. Long chunks are matrix products. Shape letters as in `model.py`;
R rows, T cached tokens.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from trainer.inference.embedded.batch import Batch, Chunk
from trainer.inference.embedded.cache import BLOCK, KVCache, positions
from trainer.inference.embedded.kernels.loops import Loops

SHORT = 16
"""Maximum length of a chunk whose tokens are processed one by one."""
_QUERIES = 128
"""Tokens of a chunk whose products with keys are computed at a time: they see nothing of what follows them."""

_KEYS = 512
"""Keys whose scores are computed at a time: they stay in the second cache until their values are summed."""


class Attention:
    def __init__(self, batch: Batch, cache: KVCache, heads: int, loops: Loops | None) -> None:
        self.batch, self.cache, self.heads, self.loops = batch, cache, heads, loops
        self.rows = batch.decode_rows
        """Number of packed tokens outside of chunks."""
        chunks = list(batch.chunks)
        if loops is None:
            self.at_RT, self.mask = _decode_plan(batch)
        else:
            shared = list(batch.decode_shared)
            while chunks and chunks[0].count <= SHORT:
                chunk = chunks.pop(0)
                self.rows += chunk.count
                shared += [0] + [chunk.start] * (chunk.count - 1)
            self.shared_N = np.array(shared, np.int64)
            self.lengths_N = batch.positions_N.numpy()[: self.rows] + 1
        self.chunks = chunks
        self._spare = np.empty(16, np.float32)

    def __call__(self, layer: int, q_NE: torch.Tensor, scale: float, out_NE: torch.Tensor) -> torch.Tensor:
        """Fill and return `out_NE`, [N, H * D]. The cache must hold the batch's keys and values."""
        if self.rows and self.loops is not None:
            self.loops.attend(
                q_NE[: self.rows].numpy(),
                self.cache.rows,
                self.batch.tables_SB,
                self.batch.table_N[: self.rows],
                layer * self.cache.layer_rows,
                self.lengths_N,
                self.shared_N,
                self.cache.tokens,
                np.float32(scale),
                self.cache.head_dim,
                out_NE[: self.rows].numpy(),
            )
        elif self.rows:
            out_NE[: self.rows] = self._decode(layer, q_NE[: self.rows], scale)
        for chunk in self.chunks:
            self._chunk(layer, chunk, q_NE, scale, out_NE)
        return out_NE

    def _decode(self, layer: int, q_RE: torch.Tensor, scale: float) -> torch.Tensor:
        kv_heads = self.cache.kv_heads
        q = q_RE.view(self.rows, kv_heads, self.heads // kv_heads, -1)  # query heads as query rows
        keys_RTKD, values_RTKD = self.cache.gather(layer, self.at_RT)
        keys, values = keys_RTKD.transpose(1, 2), values_RTKD.transpose(1, 2)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask, scale=scale)
        return out.reshape(self.rows, -1)

    def _chunk(self, layer: int, chunk: Chunk, q_NE: torch.Tensor, scale: float, out_NE: torch.Tensor) -> None:
        """Matrix products for a range of tokens and the heads that read the same keys."""
        length, kv_heads = chunk.start + chunk.count, self.cache.kv_heads
        group = self.heads // kv_heads
        both = self.cache.read(layer, self.batch.tables_SB[chunk.table], length)
        keys_KTD, values_KTD = (part_TKD.transpose(0, 1).contiguous() for part_TKD in both)
        span = slice(chunk.offset, chunk.offset + chunk.count)
        q_NKGD, out_NKGD = (part[span].view(chunk.count, kv_heads, group, -1) for part in (q_NE, out_NE))
        for first in range(0, chunk.count, _QUERIES):
            last = min(first + _QUERIES, chunk.count)
            seen, count = chunk.start + last, last - first
            hidden_NN = torch.ones(count, count, dtype=torch.bool, device=q_NE.device).triu_(1)
            for head in range(kv_heads):
                q_RD = q_NKGD[first:last, head].reshape(count * group, -1)
                keys_TD, values_TD = keys_KTD[head, :seen], values_KTD[head, :seen]
                made_RD = self._tiled(q_RD, keys_TD, values_TD, hidden_NN, scale)
                out_NKGD[first:last, head] = made_RD.view(count, group, -1)

    def _tiled(
        self,
        q_RD: torch.Tensor,
        keys_TD: torch.Tensor,
        values_TD: torch.Tensor,
        hidden_NN: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        """Attention of R = N * G queries; the last N keys are the queries' own tokens."""
        count, length = len(hidden_NN), len(keys_TD)
        own = length - count
        if self.loops is None:
            scores_RT = q_RD @ keys_TD.t()
            scores_RT.view(count, -1, length)[:, :, own:].masked_fill_(hidden_NN[:, None], float("-inf"))
            return scores_RT.mul_(scale).softmax(-1) @ values_TD
        out_RD = torch.zeros_like(q_RD)
        top_R, sum_R = np.full(len(q_RD), -np.inf, np.float32), np.zeros(len(q_RD), np.float32)
        for begin in (*range(0, own, _KEYS), own):
            end = length if begin == own else min(begin + _KEYS, own)
            scores_RT = q_RD @ keys_TD[begin:end].t()
            if begin == own:
                scores_RT.view(count, -1, count).masked_fill_(hidden_NN[:, None], float("-inf"))
            self.loops.fold(scores_RT.numpy(), top_R, sum_R, out_RD.numpy(), np.float32(scale), self._spare)
            out_RD.addmm_(scores_RT, values_TD[begin:end])
        return out_RD.div_(torch.from_numpy(sum_R)[:, None])


def _decode_plan(batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Cache rows [R, T] of what the decode rows see, and the mask: fp32 and additive, so that no layer converts it."""
    device, rows = batch.positions_N.device, batch.decode_rows
    if not rows:
        return torch.empty(0, 0, dtype=torch.long, device=device), None
    last = batch.positions_N[:rows]
    blocks = int(last.max()) // BLOCK + 1
    at_RT = torch.from_numpy(positions(batch.tables_SB[batch.table_N[:rows], :blocks])).to(device)
    visible = torch.arange(at_RT.shape[1], device=device)[None] <= last[:, None]
    mask = torch.zeros(visible.shape, device=device).masked_fill_(~visible, float("-inf"))
    return at_RT, mask[:, None, None]
