"""Pages of freed tensors go back to the system though tensors that lie between them live on."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from trainer.learning.memory import find_malloc_trim, give_back

BLOCK = 16_000
"""Floats of a tensor: 64 kB, which the C library takes from its heap."""


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(find_malloc_trim() is None, reason="the C library has no malloc_trim")
def test_freed_memory_between_living_tensors_is_given_back() -> None:
    made = [torch.zeros(BLOCK) for _ in range(1000)]
    alive = made[::10]
    before = resident()
    del made
    give_back()
    assert before - resident() > 40e6
    assert not any(map(torch.count_nonzero, alive))
