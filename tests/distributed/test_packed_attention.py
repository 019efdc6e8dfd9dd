"""Attention of context ranks over rows that hold several documents: as one process with a mask, without the mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from trainer.distributed import context_parallel
from trainer.distributed.context_parallel import Layout, positions, zigzag_attention

RANKS, CHUNK = 2, 7
LENGTH = 2 * RANKS * CHUNK
STARTS = ((0, 5, 6, 20), (0,), (0, 14, 27))


def layout(rank: int) -> Layout:
    return Layout(None, rank, RANKS, CHUNK, STARTS)  # type: ignore[arg-type]  # keys and values are there whole


def documents() -> torch.Tensor:
    begins_BT = torch.zeros(len(STARTS), LENGTH, dtype=torch.int64)
    for row, places in enumerate(STARTS):
        begins_BT[row, list(places)] = 1
    return begins_BT.cumsum(1)


@pytest.mark.parametrize("rank", range(RANKS))
def test_documents_of_a_row_see_themselves_alone(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest mask would have queries times keys of a row; none is made."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(len(STARTS), heads, LENGTH, 8) for heads in (4, 2, 2))
    at_T, documents_BT = torch.arange(LENGTH), documents()
    visible = (at_T[:, None] >= at_T[None]) & (documents_BT[:, :, None] == documents_BT[:, None])
    wanted = scaled_dot_product_attention(query, key, value, attn_mask=visible[:, None], enable_gqa=True)
    masks: list[object] = []

    def noted(*tensors: torch.Tensor, attn_mask: torch.Tensor, **rest: Any) -> torch.Tensor:
        masks.append(type(attn_mask))
        return scaled_dot_product_attention(*tensors, attn_mask=attn_mask, **rest)

    monkeypatch.setattr(context_parallel, "scaled_dot_product_attention", noted)
    part, _ = zigzag_attention(nn.Module(), layout(rank).mine(query, 2), key, value, None, zigzag=layout(rank))
    torch.testing.assert_close(part.transpose(1, 2), layout(rank).mine(wanted, 2))
    assert masks and torch.Tensor not in masks


@pytest.mark.parametrize("rank", range(RANKS))
def test_positions_count_from_the_start_of_a_document(rank: int) -> None:
    wanted = [[at - max(start for start in row if start <= at) for at in range(LENGTH)] for row in STARTS]
    assert torch.equal(positions(layout(rank), len(STARTS)), layout(rank).mine(torch.tensor(wanted)))
