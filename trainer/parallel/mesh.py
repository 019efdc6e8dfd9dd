"""How the ranks are arranged: who shares weights, who shares a row's tokens, who shares experts.

Rank = (replica · shards + shard) · context + c. Weights are cut over shards × context together (context parallelism
is folded into sharding), experts over neighbouring ranks, and what is left of the world shares each expert's rows.
The world is that of the machines that are there: any that the configuration allows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.config import ParallelConfig
from trainer.parallel.channel import KEY
from trainer.parallel.errors import ParallelRefused
from trainer.parallel.rendezvous import ROUND
from trainer.stages.device import device_of

PATIENCE = timedelta(minutes=30)
"""Longest that a rank waits for another in one collective operation: the slowest forward pass or checkpoint."""


@dataclass(frozen=True, slots=True)
class Meshes:
    """The ranks of one run. Every rank holds one, with its own coordinates."""

    config: ParallelConfig
    """Of all machines: how many ranks there are, and their replicas and shards, say the meshes."""
    device: torch.device
    dense: DeviceMesh
    """(shard) or (replicate, shard): over which everything that is no sharded expert is cut."""
    rows: DeviceMesh
    """(data, context): each data coordinate has rows of its own; its context ranks share them."""
    experts: DeviceMesh
    """(expert_shard, expert): each expert's weights lie on one `expert` coordinate, cut over `expert_shard`."""

    @property
    def rank(self) -> int:
        return distributed.get_rank()

    @property
    def world(self) -> int:
        return distributed.get_world_size()

    @property
    def data_ranks(self) -> int:
        """Parts into which the rows of a step are dealt."""
        return self.rows.size(0)

    @property
    def data_rank(self) -> int:
        return self.rows.get_local_rank("data")

    @property
    def context_rank(self) -> int:
        return self.rows.get_local_rank("context")

    def gathered(self, value: Any) -> list[Any]:
        """`value` of every rank, by rank. Small objects of our own processes only."""
        found: list[Any] = [None] * self.world
        distributed.all_gather_object(found, value)
        return found

    def from_first(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        box = [value]
        distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]


def join(config: ParallelConfig) -> Meshes:
    """Enter the process group that the environment describes (torchrun sets it). Raises StageError."""
    device = device_of(config, local=int(os.environ.get("LOCAL_RANK", "0")))
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    store = _meeting()
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=store,
        rank=_rank(store),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=PATIENCE,
    )
    return arrange(config, device)


def is_first() -> bool:
    """Whether this process is rank 0: the first of the machine that has the run."""
    return KEY in os.environ and os.environ["LOCAL_RANK"] == "0"


def _rank(store: Store) -> int:
    """torchrun numbers the machines as it likes; we begin with the one that has the run, and keep the order."""
    own, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if is_first():
        store.set("first", str(own))
    return (own - int(store.get("first"))) % world


def arrange(config: ParallelConfig, device: torch.device) -> Meshes:
    """The meshes of a process group that exists. Raises ParallelRefused when it has a size that is not allowed."""
    world = distributed.get_world_size()
    if world not in config.worlds:
        raise ParallelRefused(
            f"parallel.ranks is {config.ranks}, of which {' or '.join(map(str, config.worlds))} may train, and {world} "
            "processes were started; make them agree"
            if config.least < config.machines
            else f"parallel.ranks is {config.ranks}, and {world} processes were started; make them agree"
        )
    replicas, shards = config.cut(world)
    whole = shards * config.context
    dense = (
        _mesh(device, (replicas, whole), ("replicate", "shard"))
        if replicas > 1
        else _mesh(device, (whole,), ("shard",))
    )
    return Meshes(
        config=config,
        device=device,
        dense=dense,
        rows=_mesh(device, (world // config.context, config.context), ("data", "context")),
        experts=_mesh(device, (world // config.experts, config.experts), ("expert_shard", "expert")),
    )


def _meeting() -> Store:
    """The agents' store, under names of this start: those of ranks that died would lead to their closed addresses."""
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=PATIENCE)
    return PrefixStore(f"start-{os.environ.get(ROUND) or os.environ['TORCHELASTIC_RESTART_COUNT']}", store)


def _mesh(device: torch.device, shape: Sequence[int], names: Sequence[str]) -> DeviceMesh:
    return init_device_mesh(device.type, tuple(shape), mesh_dim_names=tuple(names))
