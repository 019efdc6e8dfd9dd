"""Reinforcement learning on two ranks with a reference that follows: the numbers of one process, also after a resume."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.distributed.worlds import meshes, run_world
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, ObjectiveConfig, ParallelConfig, RLConfig
from trainer.distributed.rl import OfFirst, ShardedRL
from trainer.errors import BatchTimeout
from trainer.rl.backend import SingleProcess
from trainer.rl.stage import run_rl
from trainer.types import TrainGroup
from trainer.weights import WeightStore, open_versions
from trainer.weights.probe import published_probe

STEPS = 6


def config(parallel: ParallelConfig) -> RLConfig:
    """Step 5 starts from version 4, and the checkpoint of step 3 needs version 2."""
    return small_config(
        steps=STEPS,
        groups_per_step=1,
        max_in_flight_groups=1,
        objective=ObjectiveConfig(loss_divisor=32.0, kl_coefficient=0.5, reference="lagged", reference_steps=2),
        checkpoint=CheckpointConfig(every_steps=3, keep=1, keep_versions=2, anchor_every=100),
        parallel=parallel,
    )


def run(root: Path, groups: list[TrainGroup], parallel: ParallelConfig, rank: int = 0) -> MemorySink:
    world = meshes(parallel) if parallel.world_size > 1 else None
    sink, source = MemorySink(), ListSource(groups, 1)
    outside = OfFirst(world, source if rank == 0 else None, sink if rank == 0 else None) if world else None
    run_rl(
        policy_dir=BASE_POLICY,
        config=config(parallel),
        seed=0,
        source=outside or source,
        sink=outside or sink,
        store=WeightStore(root / "weights", dtype="float32"),
        checkpoints=CheckpointStore(root / "checkpoints", keep=1),
        backend_of=partial(ShardedRL, world) if world else SingleProcess,
    )
    return sink


def two_ranks(rank: int, folder: str) -> None:
    model = policies.load_model(BASE_POLICY)
    groups = [make_group(model, index) for index in range(STEPS)]
    root, two = Path(folder), ParallelConfig(world_size=2, dp_shard=2)
    with pytest.raises(BatchTimeout):
        run(
            root / "ranks", groups[:5], two, rank
        )  # ends in step 6, and goes on from step 3, whose reference is version 2
    resumed = run(root / "ranks", groups, two, rank)
    if rank:
        return
    one = run(root / "one", groups, ParallelConfig())
    for version in (5, 6):  # what engines are compared with, as one process would have kept it
        said, known = (published_probe(open_versions(root / name / "weights"), version) for name in ("ranks", "one"))
        assert said and known and known.gap([(row.ids[0], row.logprobs[0]) for row in said.rows]) < 1e-3
    assert sorted(resumed.values) == [4, 5, 6]
    assert abs(resumed.values[5]["kl/k1"]) < 1e-6 < abs(resumed.values[6]["kl/k1"])  # it has just followed; it stays
    for step, values in resumed.values.items():
        for name in ("optim/loss", "optim/grad_norm", "kl/k1"):
            assert values[name] == pytest.approx(one.values[step][name], rel=2e-3, abs=1e-5), (name, step)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_lagged_reference_follows_on_ranks(tmp_path: Path) -> None:
    run_world(2, two_ranks, tmp_path, str(tmp_path))
