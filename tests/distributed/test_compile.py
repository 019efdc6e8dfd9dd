"""Compiled layers on ranks: the same step as one process takes with layers as they come."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from tests.distributed.test_equal import assert_equal
from tests.distributed.worlds import run_world


def compiled(rank: int) -> None:
    real = torch.compile
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    with patch("torch.compile", lambda *args: real(*args, backend="aot_eager")):
        for sizes in ({"dp_shard": 2}, {"dp_shard": 2, "activation_checkpointing": True}):
            counters.clear()
            assert_equal("qwen3", sizes | {"compile": True})
            assert counters["stats"]["unique_graphs"] > 0, sizes


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_layers_on_two_ranks_give_the_same_step(tmp_path: Path) -> None:
    """As graphs, without the code that a GPU would run."""
    run_world(2, compiled, tmp_path)
