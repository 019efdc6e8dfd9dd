"""The sizes of a parallel run fit together, and the text of a refusal says which do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainer.config import ParallelConfig


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"world_size": 8, "dp_shard": 2, "cp": 2}, "dp_replicate=1 × dp_shard=2 × cp=2 is 4, and world_size is 8"),
        ({"world_size": 6, "dp_shard": 6, "ep": 4}, "ep=4 does not divide world_size=6"),
        (
            {"world_size": 8, "dp_shard": 8, "max_nodes": 2, "min_nodes": 3},
            "min_nodes=3 is more than max_nodes=2; lower it, or 0 for all",
        ),
        (
            {"world_size": 16, "dp_shard": 8, "dp_replicate": 2, "max_nodes": 4, "min_nodes": 2},
            "min_nodes=2 allows 3 of 4 nodes, and dp_shard × cp=8 does not divide their 12 ranks; choose a "
            "divisor of 4, the ranks of one node, or set min_nodes to 0",
        ),
        (
            {"world_size": 16, "dp_shard": 2, "cp": 8, "max_nodes": 4, "min_nodes": 3},
            "min_nodes=3 allows 3 of 4 nodes, and cp=8 does not divide their 12 ranks",
        ),
        (
            {"world_size": 16, "dp_shard": 16, "ep": 8, "max_nodes": 4, "min_nodes": 1},
            "min_nodes=1 allows 1 of 4 nodes, and ep=8 does not divide their 4 ranks",
        ),
        ({"world_size": 0, "dp_shard": 0}, "greater than or equal to 1"),
    ],
)
def test_sizes_that_do_not_fit(sizes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        ParallelConfig(**sizes)


def test_published_sizes_fit() -> None:
    """Experts over 8 with contexts over 8 (reinforcement learning), and contexts over 2 (continued pre-training)."""
    assert ParallelConfig(world_size=64, dp_shard=8, cp=8, ep=8).world_size == 64
    assert ParallelConfig(world_size=8, dp_replicate=2, dp_shard=2, cp=2, ep=8).ep == 8


SIZES = st.integers(min_value=1, max_value=8)


@given(SIZES, SIZES, SIZES, SIZES, SIZES, st.integers(min_value=0, max_value=8))
def test_what_is_allowed_can_train_on_every_number_of_machines(
    replicas: int, shards: int, context: int, experts: int, machines: int, least: int
) -> None:
    """And what is refused could not, on one of them."""
    ranks = replicas * shards * context
    sizes = {"world_size": ranks, "dp_replicate": replicas, "dp_shard": shards, "cp": context, "ep": experts}
    each = ranks // machines
    whole = context if replicas == 1 else shards * context
    worlds = [each * present for present in range(least or machines, machines + 1)]
    fits = not ranks % machines and not ranks % experts and least <= machines
    fits = fits and all(not world % whole and not world % experts for world in worlds)
    try:
        config = ParallelConfig(max_nodes=machines, min_nodes=least, **sizes)
    except ValidationError:
        assert not fits
        return
    assert fits and config.world_sizes == worlds and config.dims_for(ranks) == (replicas, shards)
    for world in worlds:
        copies, cut = config.dims_for(world)
        assert copies * cut * context == world and copies >= 1 and cut >= 1
        assert cut == shards or replicas == 1, "a rank of several replicas holds what it held"
