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
        ({"ranks": 8, "shards": 2, "context": 2}, "replicas=1 × shards=2 × context=2 is 4, and ranks is 8"),
        ({"ranks": 6, "shards": 6, "experts": 4}, "experts=4 does not divide ranks=6"),
        (
            {"ranks": 8, "shards": 8, "machines": 2, "machines_least": 3},
            "machines_least=3 is more than machines=2; lower it, or 0 for all",
        ),
        (
            {"ranks": 16, "shards": 8, "replicas": 2, "machines": 4, "machines_least": 2},
            "machines_least=2 allows 3 of 4 machines, and shards × context=8 does not divide their 12 ranks; choose a "
            "divisor of 4, the ranks of one machine, or set machines_least to 0",
        ),
        (
            {"ranks": 16, "shards": 2, "context": 8, "machines": 4, "machines_least": 3},
            "machines_least=3 allows 3 of 4 machines, and context=8 does not divide their 12 ranks",
        ),
        (
            {"ranks": 16, "shards": 16, "experts": 8, "machines": 4, "machines_least": 1},
            "machines_least=1 allows 1 of 4 machines, and experts=8 does not divide their 4 ranks",
        ),
        ({"ranks": 0, "shards": 0}, "greater than or equal to 1"),
    ],
)
def test_sizes_that_do_not_fit(sizes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        ParallelConfig(**sizes)


def test_published_sizes_fit() -> None:
    """Experts over 8 with contexts over 8 (reinforcement learning), and contexts over 2 (continued pre-training)."""
    assert ParallelConfig(ranks=64, shards=8, context=8, experts=8).ranks == 64
    assert ParallelConfig(ranks=8, replicas=2, shards=2, context=2, experts=8).experts == 8


SIZES = st.integers(min_value=1, max_value=8)


@given(SIZES, SIZES, SIZES, SIZES, SIZES, st.integers(min_value=0, max_value=8))
def test_what_is_allowed_can_train_on_every_number_of_machines(
    replicas: int, shards: int, context: int, experts: int, machines: int, least: int
) -> None:
    """And what is refused could not, on one of them."""
    ranks = replicas * shards * context
    sizes = {"ranks": ranks, "replicas": replicas, "shards": shards, "context": context, "experts": experts}
    each = ranks // machines
    whole = context if replicas == 1 else shards * context
    worlds = [each * present for present in range(least or machines, machines + 1)]
    fits = not ranks % machines and not ranks % experts and least <= machines
    fits = fits and all(not world % whole and not world % experts for world in worlds)
    try:
        config = ParallelConfig(machines=machines, machines_least=least, **sizes)
    except ValidationError:
        assert not fits
        return
    assert fits and config.worlds == worlds and config.cut(ranks) == (replicas, shards)
    for world in worlds:
        copies, cut = config.cut(world)
        assert copies * cut * context == world and copies >= 1 and cut >= 1
        assert cut == shards or replicas == 1, "a rank of several replicas holds what it held"
