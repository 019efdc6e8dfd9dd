"""The supervised step in parts: as many passes as memory wants, the loss and the gradients of the whole batch."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.parallel import worlds
from tests.parallel.test_supervised import rows
from trainer.config import OptimizerConfig
from trainer.learning import chunked
from trainer.learning.supervised import Example, SupervisedLearner, cut

OPTIMIZER = OptimizerConfig(learning_rate=worlds.LEARNING_RATE, warmup_steps=0)


@pytest.fixture
def whole_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision rounds each pass in its own way; here the sums are to be compared."""
    monkeypatch.setattr("trainer.learning.supervised.torch.autocast", lambda *_: nullcontext())
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self)


def stepped(**settings: Any) -> tuple[dict[str, float], float, list[torch.Tensor]]:
    model = worlds.policy("qwen3")
    learner = SupervisedLearner(model, optimizer=OPTIMIZER, total_steps=10, **settings)
    values = learner.train(rows(1), step=1)
    return values, learner.loss(rows(2)), [parameter.detach() for parameter in model.parameters()]


@pytest.mark.usefixtures("whole_precision")
@pytest.mark.parametrize(
    "settings",
    [{"micro_batch_tokens": 1}, {"micro_batch_tokens": 50}, {"micro_batch_tokens": 50, "logits_at_once": 300}],
)
def test_parts_give_the_step_of_the_whole_batch(settings: dict[str, Any]) -> None:
    wanted, measured, weights = stepped()
    values, loss, moved = stepped(**settings)
    for name in values.keys() - {"speed/model_flops", "speed/mfu", "memory/trainer"}:
        assert values[name] == pytest.approx(wanted[name], rel=1e-4), name
    assert loss == pytest.approx(measured, rel=1e-5)
    assert ("loss/accuracy" in values) == ("logits_at_once" not in settings)
    for mine, theirs in zip(moved, weights, strict=True):
        assert float((mine - theirs).abs().mean()) < 0.01 * worlds.LEARNING_RATE


def test_no_more_logits_exist_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = chunked._logps
    monkeypatch.setattr(
        chunked,
        "_logps",
        lambda hidden, weight, *rest: seen.append(len(hidden) * len(weight)) or real(hidden, weight, *rest),
    )
    values, _, _ = stepped(logits_at_once=300)
    assert values["loss/train"] > 0
    assert seen and max(seen) <= 300


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20), most=st.integers(0, 90))
def test_parts_are_all_rows_in_order_and_fit(lengths: list[int], most: int) -> None:
    batch = [Example([1] * length, [1.0] * length) for length in lengths]
    parts = cut(batch, most)
    assert [row for part in parts for row in part] == batch
    for part in parts:
        assert len(part) == 1 or not most or len(part) * max(len(row.ids) for row in part) <= most
    assert most or len(parts) == 1
