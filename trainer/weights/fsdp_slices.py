"""What one rank of a sharded model publishes: its part of each parameter, from its own memory.

FSDP2 cuts parameters along the first dimension, so a rank's part is consecutive words of the whole. Replicas of a part
(hybrid sharding) are published once. Parameters that are whole on every rank go out from one rank each, in turn.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from trainer.weights.tensors import Slice


class PlacementUnknown(ValueError):
    """A parameter is cut in a way that is not consecutive words."""


def owned(state: Mapping[str, torch.Tensor], *, rank: int, world: int) -> dict[str, torch.Tensor | Slice]:
    """This rank's part of a `state_dict()`, for `RankPublisher.publish`. Raises PlacementUnknown.

    `rank` and `world` are those of the publisher; every rank calls this with the same names.
    """
    mine: dict[str, torch.Tensor | Slice] = {}
    for index, (name, tensor) in enumerate(sorted(state.items())):
        if not isinstance(tensor, DTensor):
            if index % world == rank:
                mine[name] = tensor
            continue
        cuts = [placement for placement in tensor.placements if not isinstance(placement, Replicate)]
        if any(not isinstance(cut, Shard) or type(cut) is not Shard or cut.dim != 0 for cut in cuts) or len(cuts) > 1:
            raise PlacementUnknown(
                f"{name} is placed as {tensor.placements}; publish parameters cut along dimension 0 by one mesh dimension"
            )
        if not _speaks(tensor, index):
            continue
        local = tensor.to_local()
        if not cuts:
            mine[name] = local
        elif local.numel():  # a rank may have no rows of a short parameter
            _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
            row = local[0].numel() if local.ndim > 1 else 1
            mine[name] = Slice(local, tuple(tensor.shape), offset[0] * row)
    return mine


def _speaks(tensor: DTensor, index: int) -> bool:
    """Whether this rank is the one among its replicas that publishes; whole parameters take turns."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None:
        return False
    sizes = tensor.device_mesh.shape
    replicas = [
        at == index % size
        for at, size, placement in zip(coordinate, sizes, tensor.placements, strict=True)
        if isinstance(placement, Replicate)
    ]
    return all(replicas)
