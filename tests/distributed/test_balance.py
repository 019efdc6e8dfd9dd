"""Rows are balanced evenly by their quadratic cost, each exactly once, within the token limit."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.distributed.worlds import policy
from trainer.distributed.batch_balancing import Cost, balance, cost_of, efficiency


@given(
    lengths=st.lists(st.integers(1, 400), max_size=40),
    ranks=st.integers(1, 5),
    max_tokens=st.integers(50, 800),
)
def test_every_row_is_computed_once_and_ranks_walk_equally_often(
    lengths: list[int], ranks: int, max_tokens: int
) -> None:
    balanced = balance(lengths, ranks=ranks, max_tokens=max_tokens, cost=Cost(even=100.0))
    assert len({len(batches) for batches in balanced}) == 1
    assert sorted(i for batches in balanced for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in (batch for batches in balanced for batch in batches if batch):
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= max_tokens


def test_heavy_tails_cost_little_idleness() -> None:
    """Lognormal lengths, attention dominant at the long end; dealing by number of rows or of tokens idles far more."""
    draw = random.Random(0)
    lengths = [min(30_000, int(draw.lognormvariate(7.5, 1.0)) + 16) for _ in range(512)]
    cost = Cost(even=4000.0)
    balanced = efficiency(balance(lengths, ranks=8, max_tokens=32_768, cost=cost), lengths, cost)
    tokens_only = efficiency(balance(lengths, ranks=8, max_tokens=32_768, cost=Cost(even=1e12)), lengths, cost)
    in_turn = efficiency([[[i] for i in range(rank, 512, 8)] for rank in range(8)], lengths, cost)
    assert balanced > 0.85
    assert balanced > tokens_only + 0.03 and balanced > 1.5 * in_turn


def test_the_cost_knows_the_policy() -> None:
    """Width 32, heads 4 × 16; experts count as many as a token uses."""
    assert cost_of(policy("qwen3").config).even == (4 * 32 * 32 + 3 * 32 * 24) / 64
    assert cost_of(policy("qwen3-moe").config).even == (4 * 32 * 32 + 3 * 32 * 24 * 3) / 64
