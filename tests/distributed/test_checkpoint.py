"""Checkpoints of ranks: other numbers of ranks go on from them, and a kill while one is written loses nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from tests.distributed.test_equal import MUON
from tests.distributed.worlds import alone, groups, parallel, policy, ranks_of, run_world, sharded
from tests.trainer.stages.memory import BASE_POLICY
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointError, CheckpointState, CheckpointStore
from trainer.distributed.checkpoint import ShardedCheckpoints, to_disk
from trainer.distributed.publish import published_slices
from trainer.policy.names import load_checkpoint_state
from trainer.policy.store import Policy
from trainer.weights import RankPublisher, Subscriber, open_versions

FAMILY = "qwen3-moe"


def state(step: int) -> CheckpointState:
    return CheckpointState(stage="rl", step=step, version=step, seed=0, consumed_prompts=list(range(step)))


class Killer(FileSystemWriter):
    """Kills its process once a part of the checkpoint is on disk."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        super().write_data(plan, planner).wait()
        os.kill(os.getpid(), signal.SIGKILL)


def write(rank: int, root: str, die: bool) -> None:
    tokenizer = policies.load_tokenizer(BASE_POLICY)
    learner = sharded(policy(FAMILY), parallel(2, ep=2), optimizer=MUON)
    kept = Policy(learner.model, tokenizer, policies.make_renderer(tokenizer), Path(root))
    store = CheckpointStore(Path(root) / "checkpoints", keep=1)
    checkpoints = ShardedCheckpoints(store, ranks_of(learner).meshes)
    publisher = RankPublisher(open_versions(Path(root) / "weights"), rank, 2, dtype="float32", timeout=60)
    for step in (1, 2):
        learner.train(groups(seed=step), step=step)
        publisher.publish(step, published_slices(learner.model, ranks_of(learner).meshes))
    checkpoints.save(kept, learner, state(2))
    at_two = learner.weights()
    learner.train(groups(seed=3), step=3)  # while it is written
    done = checkpoints.wait()
    assert (done == store.root / "step-000002") if rank == 0 else done is None
    if rank == 0:
        torch.save({"two": at_two, "three": learner.weights()}, Path(root) / "expected.pt")
    else:
        learner.weights()
    if die:
        cut_short = ShardedCheckpoints(store, ranks_of(learner).meshes, writer=Killer if rank == 1 else to_disk)
        cut_short.save(kept, learner, state(3))
        cut_short.wait()


def go_on(rank: int, root: str) -> None:
    """Step 3 again, on other ranks."""
    learner = sharded(policy(FAMILY, seed=9), parallel(4, ep=4, cp=2), optimizer=MUON)
    store = CheckpointStore(Path(root) / "checkpoints", keep=1)
    found = store.latest(stage="rl", whole=False)
    assert found is not None and found.state.consumed_prompts == [0, 1]
    expected = torch.load(Path(root) / "expected.pt", weights_only=True)
    checkpoints = ShardedCheckpoints(store, ranks_of(learner).meshes)
    checkpoints.load(found.path, learner)
    assert all(torch.equal(tensor, expected["two"][name]) for name, tensor in learner.weights().items())
    learner.train(groups(seed=3), step=3)
    for name, tensor in learner.weights().items():
        torch.testing.assert_close(tensor, expected["three"][name], rtol=0, atol=2e-4)
    with pytest.raises(CheckpointError, match="does not fit this policy"):
        checkpoints.load(found.path, sharded(policy("deepseek-v3"), parallel(4)))
    distributed.barrier()


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_run_goes_on_after_a_kill_and_on_another_number_of_ranks(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"-9|rank 0"):
        run_world(2, write, tmp_path, str(tmp_path), True)
    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    assert store.steps() == [2], "the checkpoint that was being written does not count, the one before does"
    expected = torch.load(tmp_path / "expected.pt", weights_only=True)

    # One process goes on.
    found = store.latest(stage="rl")
    assert found is not None
    one = alone(policies.load_model(found.policy_dir), optimizer=MUON)
    one.load_state_tensors(found.optimizer)
    one.train(groups(seed=3), step=3)
    for name, tensor in one.weights().items():
        torch.testing.assert_close(tensor, expected["three"][name], rtol=0, atol=2e-4)

    # What the ranks published is the policy too, in the names of checkpoints.
    follower = Subscriber(open_versions(tmp_path / "weights"))
    for version in (1, 2):
        fetched = follower.fetch(version)
        assert fetched is not None
        follower.commit(fetched)
    served = policy(FAMILY, seed=5)
    load_checkpoint_state(served, fetched.mirror.state())
    again = policies.load_model(found.policy_dir)
    assert all(torch.equal(t, again.state_dict()[name]) for name, t in served.state_dict().items())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_ranks_go_on_where_two_were(tmp_path: Path) -> None:
    run_world(2, write, tmp_path, str(tmp_path), False)
    run_world(4, go_on, tmp_path, str(tmp_path))
