"""Prefix sharing: tokens of prefixes that several rows share are computed once.

Attempts at one prompt share a prefix, as do prompts with the same instructions. Under causal attention, the hidden
state of a position depends only on the tokens up to it, so rows with a common prefix have equal states there. All
token-wise computation (most of a step) runs on the distinct prefixes, laid out one after the other without padding;
attention sees the original rows.

Shape suffixes: B rows, T padded length, U distinct prefixes, H heads, D head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from trainer.learning.kernels.cpu.attention import LONGEST, causal_attention

ATTENTION = "prefix_sharing"


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The distinct prefixes of a micro-batch's rows."""

    tokens_U: Tensor
    """Last token of each prefix, int64."""
    positions_U: Tensor
    """Position of that token in its row, int64."""
    of_BT: Tensor
    """Prefix that ends at each position of each row, int64; padding has 0."""
    at_U: Tensor
    """One flat position b·T + t of each prefix, int64."""

    def to(self, device: torch.device) -> PrefixTree:
        return PrefixTree(
            self.tokens_U.to(device), self.positions_U.to(device), self.of_BT.to(device), self.at_U.to(device)
        )


def build_prefix_tree(rows: Sequence[Sequence[int]], width: int) -> PrefixTree:
    """Build the tree of rows of token ids, padded to `width`; prefixes are in order of first occurrence."""
    known: dict[tuple[int, int], int] = {}
    tokens: list[int] = []
    positions: list[int] = []
    at: list[int] = []
    of_BT = torch.zeros(len(rows), width, dtype=torch.int64)
    for b, row in enumerate(rows):
        path: list[int] = []
        last = -1
        for t, token in enumerate(row):
            last = known.setdefault((last, token), len(known))
            if last == len(tokens):
                tokens.append(token)
                positions.append(t)
                at.append(b * width + t)
            path.append(last)
        of_BT[b, : len(path)] = torch.tensor(path)
    return PrefixTree(torch.tensor(tokens), torch.tensor(positions), of_BT, torch.tensor(at))


def supports_prefix_sharing(model: PreTrainedModel) -> bool:
    """Whether the model's attention is causal over all earlier tokens and can be replaced."""
    decoder = model.get_decoder()
    kinds = set(getattr(decoder.config, "layer_types", None) or ["full_attention"])
    return kinds == {"full_attention"} and getattr(decoder, "_supports_attention_backend", False)


def hidden_states(model: PreTrainedModel, shared: PrefixTree) -> Tensor:
    """The decoder's output for each prefix [U, width of the model]."""
    decoder = model.get_decoder()
    with prefix_attention(model, shared):
        out = decoder(
            input_ids=shared.tokens_U[None],
            position_ids=shared.positions_U[None],
            use_cache=False,
            prefix_tree=shared,
        )
    hidden: Tensor = out.last_hidden_state[0]
    return hidden


@contextmanager
def prefix_attention(model: PreTrainedModel, tree: PrefixTree | None) -> Iterator[None]:
    """Select this attention in the configuration, which the layers read at each call, including recomputation.

    Does nothing without a tree, or for a model whose attention cannot be replaced.
    """
    if tree is None or not supports_prefix_sharing(model):
        yield
        return
    config = model.get_decoder().config
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


def shared_attention(
    module: nn.Module,
    query_1HUD: Tensor,
    key_1HUD: Tensor,
    value_1HUD: Tensor,
    attention_mask: Tensor | None,
    *,
    prefix_tree: PrefixTree,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention function of the library's interface: assemble rows, attend, split them again."""
    slow = query_1HUD.device.type == "cpu" and not _quick_in_half()
    half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    short = slow and half and prefix_tree.of_BT.shape[1] <= LONGEST  # rotary positions give float32 whatever came in
    given = (query_1HUD, key_1HUD, value_1HUD)
    with torch.autocast("cpu", enabled=False) if slow else nullcontext():
        if short:
            scale = query_1HUD.shape[-1] ** -0.5 if scaling is None else scaling
            query_BHTD, key_BHTD, value_BHTD = (_HalfRows.apply(part, prefix_tree.of_BT) for part in given)
            out_BTHD = causal_attention(query_BHTD, key_BHTD, value_BHTD, scaling=scale).transpose(1, 2)
        else:
            query_BHTD, key_BHTD, value_BHTD = (
                _rows(part.float() if slow else part, prefix_tree.of_BT) for part in given
            )
            out_BTHD, _weights = sdpa_attention_forward(
                module, query_BHTD, key_BHTD, value_BHTD, None, scaling=scaling, is_causal=True
            )
    return out_BTHD.flatten(0, 1).index_select(0, prefix_tree.at_U)[None], None


AttentionInterface.register(ATTENTION, shared_attention)


@cache
def _quick_in_half() -> bool:
    """Whether bf16 speeds up attention on this processor; without bf16 tiles it converts back and forth."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


def _rows(part_1HUD: Tensor, of_BT: Tensor) -> Tensor:
    part_UHD = part_1HUD[0].transpose(0, 1)
    return part_UHD.index_select(0, of_BT.flatten()).unflatten(0, of_BT.shape).transpose(1, 2)


class _HalfRows(torch.autograd.Function):
    """`_rows` in half precision. Gradients are still summed in float32: hundreds of rows may share a prefix."""

    @staticmethod
    def forward(ctx: Any, part_1HUD: Tensor, of_BT: Tensor) -> Tensor:
        ctx.save_for_backward(of_BT)
        ctx.given = part_1HUD.dtype, part_1HUD.shape[2]
        return _rows(part_1HUD.to(torch.bfloat16), of_BT)

    @staticmethod
    def backward(ctx: Any, gradient_BHTD: Tensor) -> tuple[Tensor, None]:
        (of_BT,) = ctx.saved_tensors
        kind, count = ctx.given
        rows_RHD = gradient_BHTD.transpose(1, 2).flatten(0, 1).float()
        sums_UHD = rows_RHD.new_zeros(count, *rows_RHD.shape[1:]).index_add_(0, of_BT.flatten(), rows_RHD)
        return sums_UHD.transpose(0, 1)[None].to(kind), None
