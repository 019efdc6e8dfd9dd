"""The sizes of a parallel run fit together, and the text of a refusal says which do not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import ParallelConfig


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"ranks": 8, "shards": 2, "context": 2}, "replicas=1 × shards=2 × context=2 is 4, and ranks is 8"),
        ({"ranks": 6, "shards": 6, "experts": 4}, "experts=4 does not divide ranks=6"),
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
