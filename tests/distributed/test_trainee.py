"""Mid-training on two ranks is that of one process, goes on from its checkpoint, and starts under torchrun as RL does."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from tests.distributed.worlds import meshes, run_world
from tests.trainer.stages.memory import BASE_POLICY, MemorySink
from tests.trainer.stages.test_supervised import episodes
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, MidtrainConfig, OptimizerConfig, ParallelConfig
from trainer.distributed import load
from trainer.distributed.elastic.launch import run_stage_on_ranks
from trainer.distributed.rl import OfFirst
from trainer.distributed.supervised import ShardedTrainee
from trainer.midtrain.corpus.store import prepare
from trainer.midtrain.stage import run_midtrain
from trainer.sft.stage import run_sft
from trainer.stages.base import StageResult
from trainer.stages.supervised_loop import Alone, TraineeOf
from trainer.toy.preset import toy_midtrain, toy_sft

RATE = 1e-3
TWO = ParallelConfig(world_size=2, dp_shard=2)
STEPS = 3


def midtrain(root: Path, sink: MemorySink, parallel: ParallelConfig, rank: int = 0) -> StageResult:
    config = toy_midtrain(
        steps=STEPS, batch_tokens=300, source_share=0.0, parallel=parallel, checkpoint=CheckpointConfig(every_steps=2),
        optimizer=OptimizerConfig(name="muon", learning_rate=RATE, warmup_steps=0),
    )  # fmt: skip
    both = parallel.world_size > 1
    world = meshes(parallel) if both else None
    return run_midtrain(
        policy_dir=BASE_POLICY,
        config=config,
        seed=0,
        sink=OfFirst(world, None, sink if rank == 0 else None) if world else sink,
        checkpoints=CheckpointStore(root, keep=2),
        trainee_of=partial(ShardedTrainee, world) if world else Alone,
        load=load.load if world else policies.load,
    )


def two_ranks(rank: int, folder: str) -> None:
    """A run that is stopped after two steps, and goes on as another."""
    root = Path(folder) / "ranks"
    stopped = MemorySink(stop_after=2)
    assert midtrain(root, stopped, TWO, rank) == StageResult("stopped", 2, root / "step-000002")
    rest = MemorySink()
    assert midtrain(root, rest, TWO, rank) == StageResult("completed", STEPS, root / f"step-{STEPS:06d}")
    if rank:
        return
    assert any("resumed from the checkpoint of step 2" in text for _, text in rest.events)
    one = MemorySink()
    midtrain(Path(folder) / "one", one, ParallelConfig())
    for step, values in (stopped.values | rest.values).items():
        for name in ("loss/train", "optim/grad_norm", "tokens/trained", "optim/learning_rate"):
            assert values[name] == pytest.approx(one.values[step][name], rel=2e-3), (name, step, values[name])
        for name in values.keys() & {"loss/heldout"}:
            assert values[name] == pytest.approx(one.values[step][name], rel=2e-3), (name, step)
    mine, other = (
        policies.load_model(Path(folder) / place / f"step-{STEPS:06d}" / "policy").state_dict()
        for place in ("ranks", "one")
    )
    start = policies.load_model(BASE_POLICY).state_dict()
    moved = sum(float((other[name] - start[name]).norm()) for name in other)
    apart = sum(float((mine[name] - other[name]).norm()) for name in other)
    assert moved > 0 and apart < 0.05 * moved, (apart, moved)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_two_ranks_mid_train_as_one_process_and_go_on(tmp_path: Path) -> None:
    run_world(2, two_ranks, tmp_path, str(tmp_path))


def longer_rows(rank: int, folder: str) -> None:
    """Two short steps, a stop, and a long one on ranks that share rows; against one process."""
    root = Path(folder)
    config = toy_midtrain(
        corpus="all", steps=3, batch_tokens=2400, micro_batch_tokens=1200, seq_len=128, long_context_share=0.34,
        long_context_seq_len=1200,
        rope="yarn", checkpoint=CheckpointConfig(every_steps=2, keep=2), parallel=ParallelConfig(world_size=2, cp=2),
        optimizer=OptimizerConfig(name="muon", learning_rate=RATE, warmup_steps=0),
    )  # fmt: skip
    world = meshes(config.parallel)

    def run(place: str, sink: MemorySink, trainee_of: TraineeOf, config: MidtrainConfig) -> StageResult:
        both = trainee_of is not Alone
        return run_midtrain(
            policy_dir=BASE_POLICY, config=config, seed=0, corpora=root / "corpora", trainee_of=trainee_of,
            sink=OfFirst(world, None, sink if rank == 0 else None) if both else sink,
            checkpoints=CheckpointStore(root / place, keep=2), load=load.load if both else policies.load,
        )  # fmt: skip

    first, rest = MemorySink(stop_after=2), MemorySink()
    on_ranks = partial(ShardedTrainee, world)
    assert run("ranks", first, on_ranks, config).outcome == "stopped"
    assert run("ranks", rest, on_ranks, config).outcome == "completed"
    if rank:
        return
    one = MemorySink()
    run("one", one, Alone, config.model_copy(update={"parallel": ParallelConfig()}))
    for step, values in (first.values | rest.values).items():
        for name in ("loss/train", "optim/grad_norm", "tokens/trained"):
            assert values[name] == pytest.approx(one.values[step][name], rel=2e-3), (name, step)
    known = [policies.load_model(root / "ranks" / name / "policy").config for name in ("step-000002", "step-000003")]
    assert [one.max_position_embeddings for one in known] == [1024, 1200]
    assert known[1].rope_parameters["rope_type"] == "yarn"


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_context_grows_on_ranks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    words = ("red", "blue", "green", "pink", "grey", "gold", "cyan", "teal")
    for n in range(64):
        body = "\n".join(f"{words[(n + i) % 8]}_{n}_{i} = {words[(n * i) % 8]}({n * i})" for i in range(12))
        (source / f"m{n}.py").write_text(body)
    prepare(tmp_path / "corpora" / "all", [source])
    run_world(2, longer_rows, tmp_path, str(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sft_on_ranks_under_torchrun(tmp_path: Path) -> None:
    config = toy_sft(
        steps=2, batch_tokens=400, parallel=ParallelConfig(world_size=2, dp_shard=2), checkpoint=CheckpointConfig(every_steps=2),
        optimizer=OptimizerConfig(learning_rate=1e-5, warmup_steps=0),
    )  # fmt: skip
    sink, data, root = MemorySink(), episodes(20), tmp_path / "ranks"
    result = run_stage_on_ranks(
        policy_dir=BASE_POLICY, config=config, seed=0, sink=sink, checkpoints=root, episodes=data
    )
    assert result == StageResult("completed", 2, root / "step-000002")
    alone = MemorySink()
    run_sft(
        policy_dir=BASE_POLICY,
        config=config.model_copy(update={"parallel": ParallelConfig()}),
        seed=0,
        episodes=data,
        sink=alone,
        checkpoints=CheckpointStore(tmp_path / "one", keep=1),
    )
    for step in (1, 2):
        for name in ("loss/train", "loss/heldout", "tokens/trained"):
            assert sink.values[step][name] == pytest.approx(alone.values[step][name], rel=1e-2), (name, step)
    saved = policies.load_model(root / "step-000002" / "policy").state_dict()
    start = policies.load_model(BASE_POLICY).state_dict()
    assert any(not torch.equal(saved[name], start[name]) for name in start)
