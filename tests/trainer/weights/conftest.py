from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.support.buckets import new_bucket, s3_endpoint

State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_endpoint() as url:
        yield url


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return new_bucket(endpoint, monkeypatch)


@pytest.fixture
def state() -> Callable[[int], State]:
    """Weights of a version: version v differs from v - 1 in a few words, deterministically."""

    def make(version: int, timeline: int = 0) -> State:
        generator = torch.Generator().manual_seed(7)
        tensors = {
            "a": torch.randn(40, 30, generator=generator),
            "b": torch.randn(17, generator=generator),
            "frozen": torch.ones(5),
        }
        for step in range(1, version + 1):
            tensors["a"].view(-1)[(step * 37) % 1200] += 1.0 + timeline
            tensors["b"][step % 17] = float(step + 100 * timeline)
        return tensors

    return make
