"""A step on several ranks is the step of one process: loss, statistics, gradient norm, weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.tensor import Shard, distribute_tensor
from transformers import PreTrainedModel

from tests.distributed.worlds import (
    LEARNING_RATE,
    alone,
    groups,
    meshes,
    parallel,
    policy,
    ranks_of,
    run_world,
    sharded,
)
from trainer.config import ObjectiveConfig, OptimizerConfig, ParallelConfig
from trainer.distributed.fsdp import whole
from trainer.distributed.muon import ShardedOptimizer
from trainer.errors import ParallelRefused
from trainer.learning.flops import fastest_product
from trainer.learning.optimizers import NamedOptimizer
from trainer.learning.step import Learner
from trainer.weights.probe import ProbeText, measure_model

pytestmark = pytest.mark.integration

MUON = OptimizerConfig(name="muon", learning_rate=LEARNING_RATE, warmup_steps=0, max_grad_norm=0.5, weight_decay=0.1)

GSPO = ObjectiveConfig(algorithm="gspo", loss_divisor=64.0, router_replay_threshold=0.0)

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
        sizes = {"max_nodes": missing + 1, "min_nodes": 1} | sizes
    mine = sharded(policy(family), parallel(ranks * (missing + 1), **sizes), **changes)
    assert ranks_of(mine).meshes.world == ranks
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
        asked = ProbeText.of(other.model, tokenizer=None, dtype="float32")
        said, known = ranks_of(mine).probe(asked), measure_model(other.model, tokenizer=None, dtype="float32")
        assert [row.prompt_ids for row in said.rows] == [row.prompt_ids for row in known.rows]
        assert known.gap([(row.ids[0], row.logprobs[0]) for row in said.rows]) < 1e-3, label
    weights = mine.weights()
    moved = [(weights[name] - tensor).abs().mean() / LEARNING_RATE for name, tensor in other.weights().items()]
    assert max(map(float, moved)) < 0.01, label


def keep_gradients(learner: Learner, kept: list[dict[str, torch.Tensor]]) -> None:
    """Whole gradients of each step, before they are clipped."""
    clip = learner.backend.clip_gradients

    def noted(model: PreTrainedModel, max_norm: float) -> float:
        kept.append({n: whole(p.grad).clone() for n, p in model.named_parameters() if p.grad is not None})
        return clip(model, max_norm)

    learner.backend.clip_gradients = noted  # type: ignore[method-assign]


def assert_near_in_half_precision() -> None:
    """bfloat16 rounds to 3 digits: the step is the same to that order, and the weights stay float32."""
    learner = sharded(policy("qwen3"), parallel(2, cp=2, precision="bfloat16"))
    found, wanted = learner.train(groups(), step=1), alone(policy("qwen3")).train(groups(), step=1)
    assert found["optim/loss"] == pytest.approx(wanted["optim/loss"], rel=0.05, abs=0.02)
    assert found["optim/grad_norm"] == pytest.approx(wanted["optim/grad_norm"], rel=0.05)
    assert found["optim/loss"] != wanted["optim/loss"]
    assert {tensor.dtype for tensor in learner.weights().values()} == {torch.float32}
    peak = fastest_product(torch.device("cpu"), torch.bfloat16)
    assert found["speed/mfu"] == pytest.approx(found["speed/model_flops"] / (2 * peak))


class Stack(torch.nn.Module):
    """Five experts of one matrix each, tall or wide."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.experts = torch.nn.Module()
        generator = torch.Generator().manual_seed(0)
        self.experts.weight = torch.nn.Parameter(torch.randn(5, rows, columns, generator=generator))


def assert_experts_cut_by_rows() -> None:
    """Muon over matrices of which each rank holds some rows is Muon over whole matrices; so is its momentum."""
    world = meshes(parallel(2))
    for rows, columns in ((12, 8), (6, 10)):
        alone_one, cut = Stack(rows, columns), Stack(rows, columns)
        placed = distribute_tensor(cut.experts.weight.data, world.dense, [Shard(1)])
        cut.experts.weight = torch.nn.Parameter(placed)
        one, mine = NamedOptimizer(alone_one, MUON), ShardedOptimizer(cut, MUON, world)
        generator = torch.Generator().manual_seed(1)
        for _ in range(2):
            gradient = torch.randn(5, rows, columns, generator=generator)
            alone_one.experts.weight.grad = gradient.clone()
            cut.experts.weight.grad = distribute_tensor(gradient, world.dense, [Shard(1)])
            one.step(0.1)
            mine.step(0.1)
        torch.testing.assert_close(whole(cut.experts.weight), alone_one.experts.weight.detach(), rtol=0, atol=1e-3)
        kept = {name: whole(tensor) for name, tensor in mine.state_tensors().items()}
        torch.testing.assert_close(kept, one.state_tensors())


def two_ranks(rank: int) -> None:
    assert_equal("qwen3", {"cp": 2})
    assert_equal("llama", {"lm_head_chunk_size": 500, "activation_checkpointing": True}, optimizer=MUON)
    assert_equal("qwen3-moe", {"ep": 2}, replayed=True)
    assert_equal("qwen3-moe", {}, optimizer=MUON)
    assert_experts_cut_by_rows()
    assert_equal("deepseek-v3", {"ep": 2, "cp": 2}, replayed=True, objective=GSPO)
    assert_equal("qwen3", {}, missing=2)
    assert_equal("llama", {"dp_replicate": 2}, missing=1, optimizer=MUON)
    many = ParallelConfig(world_size=10, dp_shard=10, ep=2, max_nodes=5, min_nodes=1)
    with pytest.raises(ParallelRefused, match="over the 3 ranks that share each where 6 ranks train"):
        sharded(policy("qwen3-moe"), many)
    assert_near_in_half_precision()


@pytest.mark.timeout(500)
def test_two_ranks_are_one(tmp_path: Path) -> None:
    run_world(2, two_ranks, tmp_path)


def three_ranks(rank: int) -> None:
    """Three of four machines with one rank each: no size is a power of two any more."""
    for family, changes in (("qwen3", {}), ("llama", {}), ("qwen3-moe", {"optimizer": MUON})):
        mine = sharded(policy(family), ParallelConfig(world_size=4, dp_shard=4, max_nodes=4, min_nodes=2), **changes)
        found, wanted = mine.train(groups(), step=1), alone(policy(family), **changes).train(groups(), step=1)
        for name in SAME:
            assert found[name] == pytest.approx(wanted[name], rel=1e-3, abs=2e-5), f"{family}: {name}"


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_three_ranks_of_four_are_one(tmp_path: Path) -> None:
    run_world(3, three_ranks, tmp_path)


def four_ranks(rank: int) -> None:
    assert_equal("qwen3", {"cp": 2}, optimizer=MUON)
    assert_equal("deepseek-v3", {"cp": 4}, replayed=True, objective=GSPO)
    assert_equal("qwen3-moe", {"ep": 2, "dp_replicate": 2}, replayed=True)
    assert_equal("qwen3-moe", {"ep": 2}, optimizer=MUON)
    assert_equal("deepseek-v3", {"ep": 4, "cp": 2, "activation_checkpointing": True}, optimizer=MUON)
    assert_equal("llama", {"dp_replicate": 2, "cp": 2}, optimizer=MUON)
    assert_equal("mixtral", {})
    assert_equal("qwen3-moe", {"ep": 2, "dp_replicate": 2}, replayed=True, missing=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_ranks_are_one(tmp_path: Path) -> None:
    run_world(4, four_ranks, tmp_path, deadline=800.0)
