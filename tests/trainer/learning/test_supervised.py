"""The supervised step in parts: as many passes as memory wants, the loss and the gradients of the whole batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.distributed import worlds
from tests.distributed.test_supervised import rows
from trainer.config import MidtrainConfig, OptimizerConfig, SFTConfig
from trainer.learning.flops import Tokens
from trainer.learning.kernels import fused_linear_logprob
from trainer.learning.supervised import Example, SupervisedLearner, common_prefixes, cut, work_of

OPTIMIZER = OptimizerConfig(learning_rate=worlds.LEARNING_RATE, warmup_steps=0)


def stepped(**settings: Any) -> tuple[dict[str, float], float, list[torch.Tensor]]:
    model = worlds.policy("qwen3")
    learner = SupervisedLearner(model, optimizer=OPTIMIZER, total_steps=10, **settings)
    values = learner.train(rows(1), step=1)
    return values, learner.loss(rows(2)), [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize(
    "settings",
    [{"micro_batch_tokens": 1}, {"micro_batch_tokens": 50}, {"micro_batch_tokens": 50, "lm_head_chunk_size": 300}],
)
def test_parts_give_the_step_of_the_whole_batch(settings: dict[str, Any]) -> None:
    # Half precision rounds each pass in its own way; here the sums are to be compared.
    wanted, measured, weights = stepped(precision="float32")
    values, loss, moved = stepped(precision="float32", **settings)
    for name in values.keys() - {"speed/model_flops", "speed/mfu", "memory/trainer"}:
        assert values[name] == pytest.approx(wanted[name], rel=1e-4), name
    assert loss == pytest.approx(measured, rel=1e-5)
    assert ("loss/accuracy" in values) == ("lm_head_chunk_size" not in settings)
    for mine, theirs in zip(moved, weights, strict=True):
        assert float((mine - theirs).abs().mean()) < 0.01 * worlds.LEARNING_RATE


def test_what_is_computed_in_is_a_setting_and_weights_stay_whole() -> None:
    whole, _, weights = stepped(precision="float32")
    half, _, rounded = stepped(precision="bfloat16")
    chunked_half, _, _ = stepped(precision="bfloat16", lm_head_chunk_size=300)
    chunked_whole, _, _ = stepped(precision="float32", lm_head_chunk_size=300)
    assert chunked_whole["loss/train"] == pytest.approx(whole["loss/train"], rel=1e-6)
    for other in (half, chunked_half):
        assert other["loss/train"] != whole["loss/train"]
        assert other["loss/train"] == pytest.approx(whole["loss/train"], rel=0.02)
    assert {tensor.dtype for tensor in (*weights, *rounded)} == {torch.float32}
    for stage in (MidtrainConfig, SFTConfig):
        assert stage().parallel.precision == stage(parallel={"lm_head_chunk_size": 9}).parallel.precision == "auto"
        assert stage(parallel={"precision": "float32"}).parallel.precision == "float32"


def test_rows_that_are_only_measured_share_passes_of_like_length() -> None:
    learner = SupervisedLearner(worlds.policy("qwen3"), optimizer=OPTIMIZER, total_steps=10, precision="float32")
    batch = rows(2)
    many = [row for _ in range(80) for row in batch]  # more than one pass takes
    assert sum(len(row.ids) for row in many) > 4096
    assert learner.loss(many) == pytest.approx(learner.loss(batch), rel=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("family", ["qwen3", "qwen3-moe", "deepseek-v3"])
def test_rows_compute_their_common_prefix_once(family: str, recompute: bool) -> None:
    """One pass over rows that share 60 tokens is the step of one pass a row, which shares nothing."""
    opening = next(row.ids for row in rows(3))[:8] * 8
    batch = [
        Example(opening[:60] + row.ids, [0.0] * 60 + row.weights[:1] + [1.0] * (len(row.ids) - 1)) for row in rows(1)
    ]
    found = []
    for most in (1, 0):
        model = worlds.policy(family)
        if recompute:
            model.activation_checkpointing_enable({"use_reentrant": False})
        learner = SupervisedLearner(
            model, optimizer=OPTIMIZER, total_steps=10, precision="float32", micro_batch_tokens=most
        )
        assert (common_prefixes(model, batch) is not None) and common_prefixes(model, batch[:1]) is None
        values = learner.train(batch, step=1)
        found.append((values, learner.loss(batch), [parameter.detach() for parameter in model.parameters()]))
    (alone, loss_alone, weights), (shared, loss_shared, moved) = found
    for name in ("loss/train", "loss/accuracy", "optim/grad_norm"):
        assert shared[name] == pytest.approx(alone[name], rel=1e-4), name
    assert loss_shared == pytest.approx(loss_alone, rel=1e-4)
    for mine, theirs in zip(moved, weights, strict=True):
        assert float((mine - theirs).abs().mean()) < 0.01 * worlds.LEARNING_RATE


def test_the_work_of_a_step_counts_a_common_prefix_once() -> None:
    model = worlds.policy("qwen3")
    batch = [Example([1, 2, 3, 4], [0.0, 0.0, 0.0, 1.0]), Example([1, 2, 3, 5, 6], [0.0, 0.0, 0.0, 1.0, 1.0])]
    assert work_of(batch) == Tokens(9, 3, 10 + 15)
    assert work_of(batch, common_prefixes(model, batch)) == Tokens(6, 3, 10 + 4 + 5)
    packed = [Example(row.ids, row.weights, (0, 2)) for row in batch]
    assert common_prefixes(model, packed) is None, "a packed row's documents do not see each other"
    apart = [Example([1, 2, 3], [1.0] * 3), Example([4, 5, 6], [1.0] * 3)]
    assert common_prefixes(model, apart) is None, "there is nothing to share"


def test_no_more_logits_exist_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = fused_linear_logprob.chunk_logps
    monkeypatch.setattr(
        fused_linear_logprob,
        "chunk_logps",
        lambda hidden, weight, *rest: seen.append(len(hidden) * len(weight)) or real(hidden, weight, *rest),
    )
    values, _, _ = stepped(lm_head_chunk_size=300)
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
