"""Batch balancing: assigns rows to micro-batches and ranks by true cost, which grows with the square of a row's length.

Ranks that share weights synchronise in every layer of every micro-batch, so a round (one micro-batch on each rank)
takes as long as its slowest member. Rows are cut into micro-batches of similar lengths, which keeps padding small.
Micro-batches are ordered by cost and each round takes the next ones, so the members of a round have similar costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """Relative work of a row of T tokens: T · (1 + T / even). `even`: the length at which attention costs as much as
    the rest."""

    even: float

    def of(self, width: int, rows: int = 1) -> float:
        return rows * width * (1.0 + width / self.even)


def cost_of(config: Any) -> Cost:
    """Cost model from a Hugging Face configuration. A token costs about one multiplication per weight of its layer.

    Weights of a layer: 4·D² of attention and 3·D·F of the network (F: the active width, over k experts where there are
    some). Causal attention multiplies W·T / 2 twice per token, W the width of all heads.
    """
    width = int(config.hidden_size)
    heads = int(config.num_attention_heads)
    head = int(getattr(config, "head_dim", None) or width // heads)
    inner = int(getattr(config, "intermediate_size", 4 * width))
    if getattr(config, "moe_intermediate_size", None):
        inner = int(config.moe_intermediate_size) * int(getattr(config, "num_experts_per_tok", 1))
    return Cost(even=(4 * width * width + 3 * width * inner) / (heads * head))


def balance(lengths: Sequence[int], *, ranks: int, max_tokens: int, cost: Cost) -> list[list[list[int]]]:
    """Micro-batches of each rank, as row indices. All ranks get the same number; some may be empty.

    A micro-batch has at most `max_tokens` padded tokens, or is one row. Deterministic.
    """
    batches = _cut(sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)), lengths, max_tokens)
    while len(batches) % ranks:
        widest = max(range(len(batches)), key=lambda b: (len(batches[b]) > 1, _cost(batches[b], lengths, cost), -b))
        if len(batches[widest]) == 1:
            batches.append([])
        else:
            batches[widest : widest + 1] = _halves(batches[widest], lengths, cost)
    batches.sort(key=lambda batch: -_cost(batch, lengths, cost))
    balanced: list[list[list[int]]] = [[] for _ in range(ranks)]
    spent = [0.0] * ranks
    for start in range(0, len(batches), ranks):
        # The idlest rank so far takes the costliest of the round.
        order = sorted(range(ranks), key=lambda rank: (spent[rank], rank))
        for rank, batch in zip(order, batches[start : start + ranks], strict=True):
            balanced[rank].append(batch)
            spent[rank] += _cost(batch, lengths, cost)
    return balanced


def efficiency(balanced: Sequence[Sequence[Sequence[int]]], lengths: Sequence[int], cost: Cost) -> float:
    """Work of the rows without padding, relative to the time that all ranks together spend in lockstep; 1 is perfect."""
    useful = sum(cost.of(length) for length in lengths)
    rounds = zip(*balanced, strict=True)
    spent = sum(len(balanced) * max(_cost(batch, lengths, cost) for batch in batches) for batches in rounds)
    return useful / spent if spent else 1.0


def _cut(order: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Cut rows into batches, longest first, each with as many rows as fit at the first one's length."""
    batches: list[list[int]] = []
    for index in order:
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def _halves(batch: list[int], lengths: Sequence[int], cost: Cost) -> list[list[int]]:
    """Split a batch into two of nearly equal cost; rows stay in order of length."""
    at = min(
        range(1, len(batch)),
        key=lambda at: abs(_cost(batch[:at], lengths, cost) - _cost(batch[at:], lengths, cost)),
    )
    return [batch[:at], batch[at:]]


def _cost(batch: Sequence[int], lengths: Sequence[int], cost: Cost) -> float:
    return cost.of(max(lengths[i] for i in batch), len(batch)) if batch else 0.0
