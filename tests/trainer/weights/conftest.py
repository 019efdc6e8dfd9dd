from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import boto3
import pytest
import torch
from moto.server import ThreadedMotoServer

State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    settings = {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "DEFAULT_REGION": "us-east-1"}
    for name, value in (settings | {"ENDPOINT_URL": endpoint}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    name = f"weights-{uuid.uuid4().hex[:12]}"
    boto3.client("s3").create_bucket(Bucket=name)
    return name


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
