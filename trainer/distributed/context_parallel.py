"""Context parallelism: several ranks share a row's tokens, and each rank attends to everything before its own.

A row is cut into 2·C chunks, and rank i holds chunks i and 2C−1−i, so that causal attention costs the same everywhere.
Attention gathers keys and values over the ranks. Latent forms (DeepSeek's kv latents) are gathered before expansion:
what the library passes to its cache is gathered. Gradients are summed back. The rest of the network works token by
token. Documents that share a row never attend to each other.

Shape suffixes: B rows, T padded length, H heads, D head width, N policy tokens; C context ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, DynamicCache, PreTrainedModel

from trainer.distributed.parallel_dims import Meshes
from trainer.errors import ParallelRefused
from trainer.learning.packing import PAD, MicroBatch

ATTENTION = "zigzag"


def prepare(model: PreTrainedModel, meshes: Meshes) -> None:
    """Install this attention in `model` where ranks share rows. Raises ParallelRefused."""
    if meshes.config.cp == 1:
        return
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ParallelRefused(
            f"parallel.cp={meshes.config.cp}: {type(model).__name__} has layers of {sorted(kinds)}, and only full "
            "attention is cut over ranks; set it to 1"
        )
    model.set_attn_implementation(ATTENTION)


@dataclass(frozen=True, slots=True)
class Layout:
    """Placement of one micro-batch's tokens."""

    group: distributed.ProcessGroup
    rank: int
    ranks: int
    chunk: int
    """Tokens per chunk; a rank has two chunks, a whole row has 2·ranks."""
    starts: tuple[tuple[int, ...], ...] | None = None
    """Positions at which the documents of each row begin, the first is 0; None when a row is one document."""

    @property
    def chunks(self) -> tuple[int, int]:
        """Indices of this rank's chunks, in row order."""
        return self.rank, 2 * self.ranks - 1 - self.rank

    def mine(self, whole: Tensor, dim: int = 1) -> Tensor:
        """This rank's part of a tensor with all positions along `dim`."""
        return torch.cat([whole.narrow(dim, at * self.chunk, self.chunk) for at in self.chunks], dim)

    def gather(self, part: Tensor, dim: int = 2) -> Tensor:
        """Gather the parts of all ranks in row order; gradients are summed back."""
        parts = cast(Tensor, _Gather.apply(part, self.group)).unbind(0)
        firsts = [part.narrow(dim, 0, self.chunk) for part in parts]
        seconds = [part.narrow(dim, self.chunk, self.chunk) for part in reversed(parts)]
        return torch.cat([*firsts, *seconds], dim)


class GatheringCache(DynamicCache):
    """Replaces the library's cache, where keys and values are still small, and returns those of all ranks."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.layout.gather(key_states), self.layout.gather(value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


def cut(
    batch: MicroBatch, meshes: Meshes, starts: list[tuple[int, ...]] | None = None
) -> tuple[MicroBatch, Tensor, Layout]:
    """This rank's part of a micro-batch, the indices n of its policy tokens in the whole one, and the layout.

    `starts` are the document starts in each row. A token belongs to the rank of the position that predicts it.
    """
    ranks, rank = meshes.config.cp, meshes.context_rank
    width = batch.tokens_BT.shape[1]
    chunk = -(-width // (2 * ranks))
    padded = 2 * ranks * chunk
    begins = None if starts is None else tuple(tuple(sorted({0, *row})) for row in starts)
    layout = Layout(meshes.rows.get_group("context"), rank, ranks, chunk, begins)
    row_N, at_N = batch.predict_from_N // width, batch.predict_from_N % width
    number_N = at_N // chunk
    first, second = layout.chunks
    kept_N = ((number_N == first) | (number_N == second)).nonzero()[:, 0]
    place_N = row_N * 2 * chunk + at_N % chunk + chunk * (number_N == second)
    experts_BTLK = batch.experts_BTLK
    if experts_BTLK is not None:
        experts_BTLK = layout.mine(pad(experts_BTLK, (0, 0, 0, 0, 0, padded - width), value=-1))
    local = replace(
        batch,
        tokens_BT=layout.mine(pad(batch.tokens_BT, (0, padded - width), value=PAD)),
        predict_from_N=place_N[kept_N],
        targets_N=batch.targets_N[kept_N],
        sampler_logprobs_N=batch.sampler_logprobs_N[kept_N],
        advantages_N=batch.advantages_N[kept_N],
        rows_N=batch.rows_N[kept_N],
        experts_BTLK=experts_BTLK,
        mask_M=None if batch.mask_M is None else _open(batch.mask_M, kept_N),
    )
    return local, kept_N, layout


def positions(layout: Layout, rows: int) -> Tensor:
    """Positions of this rank's tokens [B, T/C]; rotary angles count from each document's first token."""
    at_BT = torch.arange(2 * layout.ranks * layout.chunk)[None].expand(rows, -1)
    if layout.starts is None:
        return layout.mine(at_BT)
    begin_BT = torch.zeros_like(at_BT)
    for row, places in enumerate(layout.starts):
        begin_BT[row, list(places)] = torch.tensor(places)
    return layout.mine(at_BT - begin_BT.cummax(1).values)


def decoded(model: PreTrainedModel, tokens_BT: Tensor, meshes: Meshes) -> Tensor:
    """The decoder's last states [B, T, D] of whole rows; context ranks compute them together and each receives all.

    Call within the root's forward pass (`fsdp.py`). Where each of these ranks then computes the whole loss, divide its
    gradients by the number of ranks.
    """
    if meshes.config.cp == 1:
        return cast(Tensor, model.get_decoder()(input_ids=tokens_BT, use_cache=False).last_hidden_state)
    none = torch.zeros(0, device=tokens_BT.device)
    rows = MicroBatch(
        tokens_BT=tokens_BT,
        predict_from_N=none.long(),
        targets_N=none.long(),
        sampler_logprobs_N=none,
        advantages_N=none,
        rows_N=none.long(),
        tokens=tokens_BT.numel(),
    )
    local, _, layout = cut(rows, meshes)
    states_BTD = model.get_decoder()(
        input_ids=local.tokens_BT,
        position_ids=positions(layout, len(tokens_BT)).to(tokens_BT.device),
        past_key_values=GatheringCache(layout),
        zigzag=layout,
    ).last_hidden_state
    return layout.gather(states_BTD, 1)[:, : tokens_BT.shape[1]]


def zigzag_attention(
    module: nn.Module,
    query_BHTD: Tensor,
    key_BHTD: Tensor,
    value_BHTD: Tensor,
    attention_mask: Tensor | None,
    *,
    zigzag: Layout | None = None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention function of the library's interface. Each of the rank's two chunks attends to its prefix of the row."""
    assert zigzag is not None, "a policy with this attention is called with its layout"
    if key_BHTD.shape[2] == query_BHTD.shape[2]:  # the class keeps no cache while it trains
        key_BHTD, value_BHTD = zigzag.gather(key_BHTD), zigzag.gather(value_BHTD)

    def attend(rows: slice, query: slice, keys: slice) -> Tensor:
        # Says "causal, aligned at the end" without a matrix of queries and keys, so that flash kernels serve it.
        visible = causal_lower_right(query.stop - query.start, keys.stop - keys.start)
        return scaled_dot_product_attention(
            query_BHTD[rows, :, query],
            key_BHTD[rows, :, keys],
            value_BHTD[rows, :, keys],
            attn_mask=cast(Tensor, visible),
            scale=scaling,
            enable_gqa=query_BHTD.shape[1] != key_BHTD.shape[1],
        )

    out = []
    for half, number in enumerate(zigzag.chunks):
        begin, end, here = number * zigzag.chunk, (number + 1) * zigzag.chunk, half * zigzag.chunk
        if zigzag.starts is None:
            out.append(attend(slice(None), slice(here, here + zigzag.chunk), slice(0, end)))
            continue
        rows = []
        for row, starts in enumerate(zigzag.starts):
            parts = [
                attend(slice(row, row + 1), slice(here + first - begin, here + last - begin), slice(start, last))
                for start, first, last in _documents(starts, begin, end)
            ]
            rows.append(torch.cat(parts, 2))
        out.append(torch.cat(rows))
    return torch.cat(out, 2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, zigzag_attention)


def _documents(starts: Sequence[int], begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Documents with positions in [begin, end): where each starts, and its half-open part in there."""
    for start, after in pairwise([*starts, max(end, starts[-1] + 1)]):
        first, last = max(start, begin), min(after, end)
        if first < last:
            yield start, first, last


class _Gather(torch.autograd.Function):
    """[…] on each rank → [ranks, …] on every rank."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: distributed.ProcessGroup) -> Tensor:
        ctx.group = group
        part = part.contiguous()
        whole = part.new_empty(group.size() * part.shape[0], *part.shape[1:])
        distributed.all_gather_single(whole, part, group=group)
        return whole.unflatten(0, (group.size(), -1))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        mine = torch.empty_like(gradient[0], memory_format=torch.contiguous_format)
        distributed.reduce_scatter_single(mine, gradient.flatten(0, 1).contiguous(), group=ctx.group)
        return mine, None


def _open(pairs: tuple[Tensor, Tensor], kept_N: Tensor) -> tuple[Tensor, Tensor]:
    """Keep only the pairs of the kept tokens, and renumber them."""
    token_M, id_M = pairs
    new_N = torch.full((int(max(token_M.max(), kept_N.max() if len(kept_N) else -1)) + 1,), -1, device=token_M.device)
    new_N[kept_N] = torch.arange(len(kept_N), device=token_M.device)
    number_M = new_N[token_M]
    return number_M[number_M >= 0], id_M[number_M >= 0]
