"""Speeds are of work that was done, not of work that a device was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
import torch

from tests.distributed import worlds
from tests.trainer.other_device import other_device
from trainer.config import OptimizerConfig
from trainer.learning import clock, flops
from trainer.learning.supervised import Example, SupervisedLearner

QUEUED = 10.0
"""Seconds that the device needs for what it was asked for between two looks at the clock."""


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """A clock that goes only while a device is waited for; which ones were."""
    found: list[torch.device] = []

    def wait(device: torch.device) -> None:
        found.append(device)

    monkeypatch.setattr(clock, "wait", wait)
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: QUEUED * len(found)))
    monkeypatch.setattr(flops, "fastest_product", lambda device, number_format, **more: 1.0)
    return found


def test_a_gpu_is_waited_for_and_the_cpu_never(monkeypatch: pytest.MonkeyPatch) -> None:
    synchronize, calls = Mock(), Mock()
    calls.attach_mock(synchronize, "synchronize")
    calls.attach_mock(Mock(return_value=3.0), "perf_counter")
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(clock, "time", calls)
    assert clock.now(torch.device("cpu")) == 3.0 and not synchronize.called
    calls.reset_mock()
    gpu = cast(torch.device, SimpleNamespace(type="cuda", index=1))
    assert clock.now(gpu) == 3.0
    assert [name for name, _, _ in calls.mock_calls] == ["synchronize", "perf_counter"], "before it is read"
    synchronize.assert_called_once_with(gpu)


def test_a_step_counts_what_was_still_queued(waited: list[torch.device], monkeypatch: pytest.MonkeyPatch) -> None:
    with other_device() as device:
        learner = worlds.alone(worlds.policy("qwen3").to(device))
        monkeypatch.setattr(learner.flops, "metrics", told := Mock(wraps=learner.flops.metrics))
        values = learner.train(worlds.groups(), step=1)
    assert set(waited) == {device}
    assert values["time/forward_backward"] == QUEUED and values["time/optimizer"] == 2 * QUEUED
    assert values["speed/train_tokens"] == pytest.approx(values["tokens/trained"] / QUEUED)
    assert told.call_args.args[1] == 2 * QUEUED, "passes and optimizer"


def test_so_does_a_supervised_step(waited: list[torch.device]) -> None:
    rows = [Example(ids=[1, 2, 3, 4], weights=[0.0, 1.0, 1.0, 1.0])]
    with other_device() as device:
        model = worlds.policy("qwen3").to(device)
        learner = SupervisedLearner(model, optimizer=OptimizerConfig(learning_rate=3e-4), total_steps=2)
        values = learner.train(rows, step=1)
        work = learner.flops.shape.flops(flops.Tokens.of_rows([4], 3))
    assert waited == [device, device]
    assert values["speed/model_flops"] == pytest.approx(work / QUEUED)
