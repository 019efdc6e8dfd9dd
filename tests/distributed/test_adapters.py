"""Adapters and hints on ranks: the numbers of one process, plain weights in the store, and a checkpoint that any number of
ranks goes on from."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.worlds import (
    LEARNING_RATE,
    OBJECTIVE,
    alone,
    groups,
    meshes,
    parallel,
    policy,
    ranks_of,
    run_world,
    sharded,
)
from tests.trainer.router_replay.moe import VOCAB
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import (
    CheckpointConfig,
    LoraConfig,
    OptimizerConfig,
    ParallelConfig,
    TextualFeedbackConfig,
)
from trainer.distributed.fsdp import whole, whole_state
from trainer.distributed.rl import OfFirst, ShardedRL
from trainer.distributed.textual_feedback import learn_from_hints as learn_together
from trainer.errors import BatchTimeout
from trainer.learning.distillation import learn_from_hints
from trainer.learning.lora import Adapters
from trainer.rl.backend import SingleProcess
from trainer.rl.stage import run_rl
from trainer.toy.preset import toy_rl, toy_sampling
from trainer.types import HintedTurn, TrainGroup
from trainer.weights import WeightStore

LORA = LoraConfig(rank=4, alpha=8.0)
HINTS = TextualFeedbackConfig(coefficient=0.7, min_shift=0.0, micro_batch_turns=2)
MUON = OptimizerConfig(name="muon", learning_rate=LEARNING_RATE, warmup_steps=0, max_grad_norm=0.5)


def hinted(group: TrainGroup, count: int, vocabulary: int = VOCAB) -> TrainGroup:
    draw = random.Random(count)
    turns = []
    for _ in range(count):
        before, hint, turn = ([draw.randrange(vocabulary) for _ in range(draw.randint(3, 9))] for _ in range(3))
        turns.append(
            HintedTurn(rule="r", tokens=before + turn, hinted_tokens=before + hint + turn, turn_tokens=len(turn))
        )
    return group.model_copy(update={"hints": turns})


def same_gradients(
    family: str, sizes: dict[str, Any], count: int, *, lora: bool, feedback: TextualFeedbackConfig = HINTS
) -> None:
    """A step of hints and rewards, with adapters or without, against one process."""
    label = f"{family} {sizes} {count} hints, adapters: {lora}"
    config = toy_rl(
        parallel=parallel(2, **sizes),
        objective=OBJECTIVE,
        textual_feedback=feedback,
        sampling=toy_sampling(temperature=0.8),
    )
    batch = [hinted(group, count) for group in groups()]
    learners = []
    for make in (partial(sharded, config=config.parallel), alone):
        model = policy(family)
        adapters = Adapters(model, LORA, seed=0) if lora else None
        learners.append(make(model, adapters=adapters, optimizer=MUON))
    both, one = learners
    found = learn_together(ranks_of(both).root, ranks_of(both).meshes, batch, config)
    wanted = learn_from_hints(one.model, batch, config)
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6), label
    gradients = {name: p.grad for name, p in one.model.named_parameters() if p.grad is not None}
    mine = {name: whole(p.grad) for name, p in both.model.named_parameters() if p.grad is not None}
    assert mine.keys() == gradients.keys(), label
    scale = max((float(gradient.abs().max()) for gradient in gradients.values()), default=0.0)
    for name, gradient in gradients.items():
        torch.testing.assert_close(mine[name], gradient, rtol=1e-3, atol=1e-5 * scale, msg=f"{label}: {name}")
    for step in (1, 2):
        values, other = both.train(batch, step=step), one.train(batch, step=step)
        for name in ("optim/loss", "optim/grad_norm", "policy/entropy"):
            assert values[name] == pytest.approx(other[name], rel=1e-3, abs=2e-5), f"{label}: {name}"
    plain = dict(whole_state(both.published_state()))
    for name, tensor in one.weights().items():
        assert float((plain[name] - tensor).abs().mean()) < 0.02 * LEARNING_RATE, f"{label}: {name}"


def two_ranks(rank: int) -> None:
    same_gradients("qwen3", {"dp_shard": 2}, 5, lora=True)
    same_gradients("llama", {"cp": 2}, 3, lora=False)
    same_gradients("qwen3", {"dp_shard": 2, "lm_head_chunk_size": 400}, 1, lora=False)  # a rank without a turn
    nothing = HINTS.model_copy(update={"min_shift": 100.0})
    same_gradients("llama", {"dp_shard": 2}, 4, lora=True, feedback=nothing)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_hints_and_adapters_on_two_ranks_are_those_of_one(tmp_path: Path) -> None:
    run_world(2, two_ranks, tmp_path)


def staged(root: Path, data: list[TrainGroup], ranks: int, rank: int = 0) -> MemorySink:
    sizes = ParallelConfig(world_size=ranks, dp_shard=ranks)
    config = small_config(
        groups_per_step=1, max_in_flight_groups=1, lora=LORA, feedback=HINTS, parallel=sizes, steps=4,
        checkpoint=CheckpointConfig(every_steps=2, keep=2), optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=0),
    )  # fmt: skip
    world = meshes(sizes) if ranks > 1 else None
    sink, source = MemorySink(), ListSource(data, 1)
    outside = OfFirst(world, source if rank == 0 else None, sink if rank == 0 else None) if world else None
    run_rl(
        policy_dir=BASE_POLICY, config=config, seed=0, source=outside or source, sink=outside or sink,
        store=WeightStore(root / "weights", dtype="float32"), checkpoints=CheckpointStore(root / "checkpoints", keep=2),
        backend_of=partial(ShardedRL, world) if world else SingleProcess,
    )  # fmt: skip
    return sink


def stages(rank: int, folder: str) -> None:
    root = Path(folder)
    model = policies.load_model(BASE_POLICY)
    data = [hinted(make_group(model, index), 2, 400) for index in range(4)]
    with pytest.raises(BatchTimeout):
        staged(root / "ranks", data[:3], 2, rank)
    resumed = staged(root / "ranks", data, 2, rank)
    if rank:
        return
    assert any("resumed from the checkpoint of step 2" in text for _, text in resumed.events)
    one = staged(root / "one", data, 1)
    for step, values in resumed.values.items():
        for name in ("optim/loss", "optim/grad_norm", "feedback/shift"):
            assert values[name] == pytest.approx(one.values[step][name], rel=5e-3, abs=1e-5), (name, step)
    mine, theirs = (WeightStore(root / name / "weights", dtype="float32").load(4).state for name in ("ranks", "one"))
    assert mine.keys() == theirs.keys() == model.state_dict().keys(), "plain weights"
    assert max(float((mine[name] - theirs[name]).abs().mean()) for name in mine) < 2e-5
    saved = policies.load_model(root / "ranks" / "checkpoints" / "step-000004" / "policy").state_dict()
    assert all(torch.equal(saved[name], tensor) for name, tensor in mine.items())
    # One process goes on from step 2 of the ranks.
    last = root / "ranks" / "checkpoints" / "step-000004"
    last.rename(root / "later")
    alone_again = staged(root / "ranks", data, 1)
    for name in ("optim/loss", "optim/grad_norm"):
        assert alone_again.values[4][name] == pytest.approx(one.values[4][name], rel=5e-3, abs=1e-5), name


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_stage_with_adapters_and_hints_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    run_world(2, stages, tmp_path, str(tmp_path))
