"""The work of one step: single tokens of many sequences and chunks of prompts, packed into one row of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Chunk:
    """Tokens [start, start + count) of the sequence in `slot`; `offset` is their position in the packed batch."""

    slot: int
    start: int
    count: int
    offset: int


@dataclass(frozen=True)
class Batch:
    """The first `len(decode_slots)` packed tokens are decode rows; the chunks follow in order."""

    tokens_N: torch.Tensor
    positions_N: torch.Tensor
    slots_N: torch.Tensor
    decode_slots: list[int]
    decode_length: int
    """Length of the longest decode row, including its new token."""
    decode_shared: list[int]
    """Leading cached tokens that each decode row shares with the previous row; 0 starts a new prefix group."""
    chunks: list[Chunk]
    logits_at: torch.Tensor
    """Packed positions whose next-token logits are needed."""
