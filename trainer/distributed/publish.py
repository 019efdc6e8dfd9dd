"""Publishing from the ranks: each publishes the words that it holds, under the tensor names of checkpoints.

In memory the library stacks a layer's experts; checkpoints name each expert. A rank holds whole experts or equal rows
of some. Its part of each named tensor is therefore consecutive, and nothing is gathered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from trainer.distributed.expert_parallel import WEIGHTS
from trainer.distributed.parallel_dims import Meshes
from trainer.errors import ParallelRefused
from trainer.policy.names import stacks_experts
from trainer.weights.fsdp_slices import owned
from trainer.weights.tensors import Slice

GATE_UP, DOWN = WEIGHTS


@dataclass(frozen=True, slots=True)
class Source:
    """Where a checkpoint's named tensor lies in memory."""

    name: str
    expert: int | None = None
    half: int = 0
    """Half of the two matrices stacked into one: 0 gate, 1 up."""


def published_slices(
    model: PreTrainedModel, meshes: Meshes, state: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor | Slice]:
    """This rank's part of the policy, for `RankPublisher.publish`. `state` replaces the model's own (merged adapters).

    Raises ParallelRefused, PlacementUnknown.
    """
    state = {name: tensor.detach() for name, tensor in (state or model.state_dict()).items()}
    sources = sources_of(model, state)
    stacks = {name: tensor for name, tensor in state.items() if is_stack(name)}
    plain = {new: state[source.name] for new, source in sources.items() if source.expert is None}
    out = owned(plain, rank=meshes.rank, world=meshes.world)
    for name, tensor in stacks.items():
        out.update(_experts(name, tensor, {s: new for new, s in sources.items()}))
    return out


def _experts(name: str, tensor: Tensor, names: dict[Source, str]) -> Iterator[tuple[str, Slice]]:
    """Rows of each expert on this rank. The first replica publishes."""
    if isinstance(tensor, DTensor):
        coordinate = tensor.device_mesh.get_coordinate()
        assert coordinate is not None
        if any(at and isinstance(p, Replicate) for at, p in zip(coordinate, tensor.placements, strict=True)):
            return
        _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        part = tensor.to_local()
    else:
        offset, part = (0, 0, 0), tensor
    for piece in pieces(name, tuple(tensor.shape), tuple(part.shape), tuple(offset)):
        words = part[piece.at, piece.rows]
        height, width = tensor.shape[1] // _halves(name), tensor.shape[2]
        yield names[piece.source], Slice(words, (height, width), piece.start * width)


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one expert's named tensor within a part of the stack."""

    source: Source
    at: int
    """Index of the expert in the part."""
    rows: slice
    """Rows of the part."""
    start: int
    """First of these rows in the named tensor."""


def pieces(name: str, shape: tuple[int, ...], part: tuple[int, ...], offset: tuple[int, ...]) -> Iterator[Piece]:
    """Rows of each expert in a part of the stack `name` of `shape`; `part` is its size, `offset` its start."""
    if not math.prod(part):
        return
    halves = _halves(name)
    height = shape[1] // halves
    first, last = offset[1], offset[1] + part[1]
    for at in range(part[0]):
        for half in range(halves):
            start, stop = max(first, half * height), min(last, (half + 1) * height)
            if start < stop:
                source = Source(name, offset[0] + at, half)
                yield Piece(source, at, slice(start - first, stop - first), start - half * height)


def _halves(name: str) -> int:
    return 2 if name.endswith(GATE_UP) else 1


def is_stack(name: str) -> bool:
    """Whether `name` is a layer's experts in one tensor."""
    return name.endswith(tuple(f".experts.{weight}" for weight in WEIGHTS))


def shape_of(source: Source, tensor: Tensor) -> tuple[int, ...]:
    """Shape of the checkpoint tensor that comes from `source`; `tensor` is that source in memory."""
    if source.expert is None:
        return tuple(tensor.shape)
    _, rows, width = tensor.shape
    return rows // _halves(source.name), width


def sources_of(model: PreTrainedModel, state: Mapping[str, Tensor]) -> dict[str, Source]:
    """Every checkpoint name and its source, found by sending numbers through the library's own renaming. `state` is the
    model's, in memory.
    """
    if not stacks_experts(model):
        return {name: Source(name) for name in state}
    sources: list[Source] = []
    probe = {}
    for name, tensor in state.items():
        if is_stack(name):
            halves = _halves(name)
            mine = [Source(name, expert, half) for expert in range(tensor.shape[0]) for half in range(halves)]
            shape: tuple[int, ...] = (-1, halves, 1)
        else:
            mine, shape = [Source(name)], (1,)
        probe[name] = torch.arange(len(sources), len(sources) + len(mine)).view(shape)
        sources += mine
    found = {}
    for name, number in revert_weight_conversion(model, probe).items():
        tensor = cast(Tensor, number)
        if tensor.numel() != 1:
            raise ParallelRefused(
                f"{type(model).__name__} saves {name} in a way that ranks cannot publish; use one rank"
            )
        found[name] = sources[int(tensor)]
    if len(found) != len(sources):
        raise ParallelRefused(f"{type(model).__name__} does not save all of its weights by name; use one rank")
    return found
