"""A step on several ranks is the step of one process: loss, statistics, gradient norm, weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from tests.parallel.worlds import LEARNING_RATE, alone, groups, parallel, policy, run_world, sharded
from trainer.config import ObjectiveConfig, OptimizerConfig, ParallelConfig
from trainer.learning.step import Learner
from trainer.parallel.errors import ParallelRefused
from trainer.parallel.shard import whole
from trainer.weights.probe import measure_model

MUON = OptimizerConfig(name="muon", learning_rate=LEARNING_RATE, warmup_steps=0, clip_norm=0.5, weight_decay=0.1)

GSPO = ObjectiveConfig(algorithm="gspo", loss_divisor=64.0, expert_plausibility=0.0)

SAME = ("optim/loss", "optim/grad_norm", "policy/entropy", "mismatch/k3_p99", "correction/ess", "tokens/trained")


def assert_equal(
    family: str, sizes: dict[str, Any], *, replayed: bool = False, missing: int = 0, **changes: Any
) -> None:
    """Called on every rank: two steps. Gradients are compared one by one, weights in the mean. `missing`: so many machines,
    of as many ranks as there are, did not come.

    AdamW divides a number's first gradient by itself: where that is noise the update is noise of full size.
    """
    ranks = distributed.get_world_size()
    if missing:
        sizes = {"machines": missing + 1, "machines_least": 1} | sizes
    mine = sharded(policy(family), parallel(ranks * (missing + 1), **sizes), **changes)
    assert mine.meshes.world == ranks
    other = alone(policy(family), **changes)
    gradients: list[dict[str, torch.Tensor]] = []
    keep_gradients(mine, gradients)
    keep_gradients(other, gradients)
    for step in (1, 2):
        batch = groups(experts_of=policy(family) if replayed else None, seed=step)
        found, wanted = mine.train(batch, step=step), other.train(batch, step=step)
        label = f"{family} {sizes} step {step}"
        assert found.keys() == wanted.keys(), label
        # Padding is routed too, and differs: shares of tokens with a record do not.
        for name in SAME + tuple(name for name in wanted if name.startswith(("routing/differs", "routing/replaced"))):
            assert found[name] == pytest.approx(wanted[name], rel=1e-3, abs=2e-5), f"{label}: {name}"
        first, second = gradients
        if step == 1:
            assert first.keys() == second.keys()
            scale = max(float(gradient.abs().max()) for gradient in second.values())
            for name, gradient in second.items():
                torch.testing.assert_close(first[name], gradient, rtol=1e-4, atol=2e-6 * scale, msg=f"{label}: {name}")
        gradients.clear()
        # Between two steps, as a stage asks for it: nothing of it may stay behind for the next one.
        said, known = mine.probe(), measure_model(other.model)
        assert [row.prompt_ids for row in said.rows] == [row.prompt_ids for row in known.rows]
        assert known.gap([(row.ids[0], row.logprobs[0]) for row in said.rows]) < 1e-3, label
    weights = mine.weights()
    moved = [(weights[name] - tensor).abs().mean() / LEARNING_RATE for name, tensor in other.weights().items()]
    assert max(map(float, moved)) < 0.01, label


def keep_gradients(learner: Learner, kept: list[dict[str, torch.Tensor]]) -> None:
    """Whole gradients of each step, before they are clipped."""
    update = learner._update

    def noted(rate: float, step: int) -> float:
        kept.append({n: whole(p.grad).clone() for n, p in learner.model.named_parameters() if p.grad is not None})
        return update(rate, step)

    learner._update = noted  # type: ignore[method-assign]


def assert_near_in_half_precision() -> None:
    """bfloat16 rounds to 3 digits: the step is the same to that order, and the weights stay float32."""
    learner = sharded(policy("qwen3"), parallel(2, context=2, precision="bfloat16"))
    found, wanted = learner.train(groups(), step=1), alone(policy("qwen3")).train(groups(), step=1)
    assert found["optim/loss"] == pytest.approx(wanted["optim/loss"], rel=0.05, abs=0.02)
    assert found["optim/grad_norm"] == pytest.approx(wanted["optim/grad_norm"], rel=0.05)
    assert found["optim/loss"] != wanted["optim/loss"]
    assert {tensor.dtype for tensor in learner.weights().values()} == {torch.float32}


def two_ranks(rank: int) -> None:
    assert_equal("qwen3", {"context": 2})
    assert_equal("llama", {"logits_at_once": 500, "checkpoint_activations": True}, optimizer=MUON)
    assert_equal("qwen3-moe", {"experts": 2}, replayed=True)
    assert_equal("deepseek-v3", {"experts": 2, "context": 2}, replayed=True, objective=GSPO)
    assert_equal("qwen3", {}, missing=2)
    assert_equal("llama", {"replicas": 2}, missing=1, optimizer=MUON)
    many = ParallelConfig(ranks=10, shards=10, experts=2, machines=5, machines_least=1)
    with pytest.raises(ParallelRefused, match="over the 3 ranks that share each where 6 ranks train"):
        sharded(policy("qwen3-moe"), many)
    assert_near_in_half_precision()


@pytest.mark.timeout(500)
def test_two_ranks_are_one(tmp_path: Path) -> None:
    run_world(2, two_ranks, tmp_path)


def three_ranks(rank: int) -> None:
    """Of four machines of one rank each: no size is a power of two any more."""
    for family in ("qwen3", "llama"):
        mine = sharded(policy(family), ParallelConfig(ranks=4, shards=4, machines=4, machines_least=2))
        found, wanted = mine.train(groups(), step=1), alone(policy(family)).train(groups(), step=1)
        for name in SAME:
            assert found[name] == pytest.approx(wanted[name], rel=1e-3, abs=2e-5), f"{family}: {name}"


@pytest.mark.timeout(500)
def test_three_ranks_of_four_are_one(tmp_path: Path) -> None:
    run_world(3, three_ranks, tmp_path)


def four_ranks(rank: int) -> None:
    assert_equal("qwen3", {"context": 2}, optimizer=MUON)
    assert_equal("deepseek-v3", {"context": 4}, replayed=True, objective=GSPO)
    assert_equal("qwen3-moe", {"experts": 2, "replicas": 2}, replayed=True)
    assert_equal("deepseek-v3", {"experts": 4, "context": 2, "checkpoint_activations": True}, optimizer=MUON)
    assert_equal("llama", {"replicas": 2, "context": 2}, optimizer=MUON)
    assert_equal("mixtral", {})
    assert_equal("qwen3-moe", {"experts": 2, "replicas": 2}, replayed=True, missing=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_ranks_are_one(tmp_path: Path) -> None:
    run_world(4, four_ranks, tmp_path, deadline=800.0)
