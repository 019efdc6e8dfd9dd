"""Device meshes: which ranks share weights, which share a row's tokens, which share experts.

Rank = (replica · shards + shard) · context + c. Weights are sharded over shards × context (context parallelism is
folded into sharding). Experts are sharded over neighbouring ranks, and the remaining ranks shard each expert's rows.
The world consists of the nodes that are present, in any size that the configuration allows.
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
from trainer.distributed.elastic.rendezvous import ROUND
from trainer.distributed.elastic.rpc import KEY
from trainer.errors import ParallelRefused
from trainer.stages.device import device_of, with_precision

PATIENCE = timedelta(minutes=30)
"""Timeout of one collective operation: covers the slowest forward pass or checkpoint."""


@dataclass(frozen=True, slots=True)
class Meshes:
    """The device meshes of one run. Every rank holds an instance with its own coordinates."""

    config: ParallelConfig
    """Configuration for all nodes; the meshes give the actual world size, replicas and shards."""
    device: torch.device
    dense: DeviceMesh
    """(shard) or (replicate, shard): mesh over which everything but sharded experts is sharded."""
    rows: DeviceMesh
    """(data, context): each data coordinate has its own rows, which its context ranks share."""
    experts: DeviceMesh
    """(expert_shard, expert): each expert's weights lie on one `expert` coordinate, sharded over `expert_shard`."""

    @property
    def rank(self) -> int:
        return distributed.get_rank()

    @property
    def world(self) -> int:
        return distributed.get_world_size()

    @property
    def data_ranks(self) -> int:
        """Number of parts into which the rows of a step are scattered."""
        return self.rows.size(0)

    @property
    def data_rank(self) -> int:
        return self.rows.get_local_rank("data")

    @property
    def context_rank(self) -> int:
        return self.rows.get_local_rank("context")

    def gathered(self, value: Any) -> list[Any]:
        """All-gather `value`, ordered by rank. Only for small objects of trusted processes."""
        found: list[Any] = [None] * self.world
        distributed.all_gather_object(found, value)
        return found

    def to_first(self, value: Any) -> list[Any]:
        """Gather `value` on rank 0, ordered by rank; empty on the others. Only for objects of trusted processes."""
        found: list[Any] = [None] * self.world if self.rank == 0 else []
        distributed.gather_object(value, found if self.rank == 0 else None, dst=0)
        return found

    def from_first(self, value: Any) -> Any:
        """Broadcast rank 0's value."""
        box = [value]
        distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]


def join(config: ParallelConfig) -> Meshes:
    """Join the process group that the environment describes (torchrun sets it). Raises StageError."""
    device = device_of(config, local=int(os.environ.get("LOCAL_RANK", "0")))
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    store = _meeting()
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=store,
        rank=process_rank(store),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=PATIENCE,
    )
    return arrange(config, device)


def is_first() -> bool:
    """Whether this process is rank 0, the first of the host node."""
    return KEY in os.environ and os.environ["LOCAL_RANK"] == "0"


def process_rank(store: Store) -> int:
    """Rank with the host node first. torchrun numbers nodes arbitrarily; ranks start at the host and keep torchrun's
    order."""
    own, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if is_first():
        store.set("first", str(own))
    return (own - int(store.get("first"))) % world


def arrange(config: ParallelConfig, device: torch.device) -> Meshes:
    """Build the meshes of an existing process group. Raises ParallelRefused when its size is not allowed."""
    config = with_precision(config, device)
    world = distributed.get_world_size()
    if world not in config.world_sizes:
        raise ParallelRefused(
            f"parallel.world_size is {config.world_size}, of which {' or '.join(map(str, config.world_sizes))} "
            f"may train, and {world} "
            "processes were started; make them agree"
            if config.fewest_nodes < config.max_nodes
            else f"parallel.world_size is {config.world_size}, and {world} processes were started; make them agree"
        )
    replicas, shards = config.dims_for(world)
    whole = shards * config.cp
    dense = (
        _mesh(device, (replicas, whole), ("replicate", "shard"))
        if replicas > 1
        else _mesh(device, (whole,), ("shard",))
    )
    return Meshes(
        config=config,
        device=device,
        dense=dense,
        rows=_mesh(device, (world // config.cp, config.cp), ("data", "context")),
        experts=_mesh(device, (world // config.ep, config.ep), ("expert_shard", "expert")),
    )


def _meeting() -> Store:
    """The agents' store, under names of this start: names of dead ranks would lead to their closed addresses."""
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=PATIENCE)
    return PrefixStore(f"start-{os.environ.get(ROUND) or os.environ['TORCHELASTIC_RESTART_COUNT']}", store)


def _mesh(device: torch.device, shape: Sequence[int], names: Sequence[str]) -> DeviceMesh:
    return init_device_mesh(device.type, tuple(shape), mesh_dim_names=tuple(names))
