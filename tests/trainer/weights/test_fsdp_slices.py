"""Ranks of a model under FSDP2 publish what they hold; readers find the whole model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.multiprocessing as multiprocessing
from torch import distributed, nn

from trainer.weights import RankPublisher, Subscriber, open_versions
from trainer.weights.fsdp_slices import owned

pytestmark = pytest.mark.integration

WORLD, VERSIONS = 2, 3


class Model(nn.Module):
    """An odd number of rows, a vector of one, a parameter that is not sharded."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(6, 7)
        self.gain = nn.Parameter(torch.ones(1))
        self.outer = nn.Linear(7, 3, bias=False)
        self.register_buffer("steps", torch.zeros(2, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(x)) * self.gain)


def train_and_publish(rank: int, root: str, rendezvous: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORLD)
    model = Model()
    mesh = init_device_mesh("cpu", (WORLD,))
    fully_shard(model.inner, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    publisher = RankPublisher(open_versions(Path(root) / "store"), rank, WORLD, dtype="float32", timeout=60)
    for version in range(VERSIONS):
        publisher.publish(version, owned(model.state_dict(), rank=rank, world=WORLD))
        whole = {
            name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            for name, tensor in model.state_dict().items()
        }
        if rank == 0:
            torch.save({name: tensor.clone() for name, tensor in whole.items()}, Path(root) / f"whole-{version}.pt")
        model(torch.full((4, 6), float(version + 1))).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.steps += 1
    distributed.destroy_process_group()


@pytest.mark.timeout(300)
def test_the_parts_of_two_ranks_are_the_whole_model_at_every_version(tmp_path: Path) -> None:
    rendezvous = f"file://{tmp_path}/rendezvous"
    multiprocessing.spawn(train_and_publish, args=(str(tmp_path), rendezvous), nprocs=WORLD)
    follower = Subscriber(open_versions(tmp_path / "store"))
    for version in range(VERSIONS):
        fetched = follower.fetch(version)
        assert fetched is not None and len(fetched.mirror.manifest.shards) == WORLD
        assert fetched.mirror.manifest.kind == ("delta" if version else "anchor")
        follower.commit(fetched)
        state, whole = fetched.mirror.state(), torch.load(tmp_path / f"whole-{version}.pt", weights_only=True)
        assert state.keys() == whole.keys()
        assert all(torch.equal(state[name], tensor) for name, tensor in whole.items())
    pieces = follower.current.manifest.tensors["inner.weight"].pieces
    assert [(piece.shard, piece.start, piece.stop) for piece in pieces] == [(0, 0, 24), (1, 24, 42)]
