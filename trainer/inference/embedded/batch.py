"""The work of one step: single tokens of many sequences and chunks of prompts, packed into one row of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from trainer.inference.embedded.cache import Blocks


@dataclass(frozen=True)
class Chunk:
    """Tokens [start, start + count) of the sequence with block table `table`; `offset` is their position in the packed
    batch."""

    table: int
    start: int
    count: int
    offset: int


@dataclass(frozen=True)
class Batch:
    """The first `decode_rows` packed tokens are decode rows; the chunks follow in order."""

    tokens_N: torch.Tensor
    positions_N: torch.Tensor
    rows_N: torch.Tensor
    """Cache rows of the tokens' keys in layer 0."""
    table_N: npt.NDArray[np.int64]
    """Block table of each token: a row of `tables_SB`."""
    tables_SB: Blocks
    """Block tables of all sequences."""
    decode_rows: int
    decode_shared: list[int]
    """Leading cached tokens that each decode row shares with the previous row; 0 starts a new prefix group."""
    chunks: list[Chunk]
    logits_at: torch.Tensor
    """Packed positions whose next-token logits are needed."""
