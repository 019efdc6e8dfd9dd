"""AdamW and Muon over sharded weights, with the state of each number where the number is.

AdamW works number by number, so each rank runs it on its own part. Muon makes whole matrices orthogonal: each matrix has
an owner among the ranks that share it, gradients travel to the owners in one all-to-all, the owner runs torch's own Muon
on whole gradients and keeps the momentum, and the updates travel back the same way. The momentum of each matrix exists
once, and no rank ever holds more whole matrices than its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from trainer.config import OptimizerConfig
from trainer.learning.optimizers import NamedOptimizer, muon_matrices
from trainer.parallel.mesh import Meshes


def local(tensor: Tensor) -> Tensor:
    """This rank's part, the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def clip(model: nn.Module, meshes: Meshes, most: float) -> float:
    """Scales all gradients so that their norm over all ranks is at most `most`; returns the norm before."""
    squares = torch.zeros((), dtype=torch.float64, device=meshes.device)
    gradients = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            part = local(parameter.grad)
            gradients.append(part)
            if part.numel():
                squares += torch.linalg.vector_norm(part, dtype=torch.float32).double().square() / _copies(
                    parameter.grad, meshes
                )
    distributed.all_reduce(squares)
    norm = float(squares.sqrt())
    if norm > most:
        torch._foreach_mul_([part for part in gradients if part.numel()], most / (norm + 1e-6))
    return norm


def _copies(tensor: Tensor, meshes: Meshes) -> int:
    """How many ranks hold the same part."""
    if not isinstance(tensor, DTensor):
        return meshes.world
    parts = 1
    for size, placement in zip(tensor.device_mesh.shape, tensor.placements, strict=True):
        parts *= 1 if isinstance(placement, Replicate) else size
    return meshes.world // parts


class ShardedOptimizer(NamedOptimizer):
    """The optimizers of a sharded model behind one `step`."""

    def __init__(self, model: nn.Module, config: OptimizerConfig, meshes: Meshes) -> None:
        self.config = config
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        matrices = muon_matrices(model) if config.name == "muon" else set()
        self._whole = {name: p for name, p in named.items() if p in matrices}
        self._parts = {name: p for name, p in named.items() if p not in matrices}
        self._muon = _OwnedMuon(self._whole, config, meshes) if self._whole else None
        # Plain tensors over the same memory: no mesh has a say in what is done number by number.
        self._mirrors = {name: nn.Parameter(local(p.data)) for name, p in self._parts.items()}
        here = [mirror for mirror in self._mirrors.values() if mirror.numel()]
        # None where a rank has no part of anything, or all are matrices (Muon on adapters).
        self._adamw = (
            torch.optim.AdamW(
                here,
                lr=config.learning_rate,
                betas=(config.beta1, config.beta2),
                weight_decay=0.0 if self._muon else config.weight_decay,
                fused=True,
            )
            if here
            else None
        )

    def step(self, rate: float) -> None:
        """Apply the gradients at learning rate `rate` and drop them. All ranks together."""
        for name, mirror in self._mirrors.items():
            gradient = self._parts[name].grad
            mirror.grad = None if gradient is None else local(gradient)
        if self._adamw:
            for group in self._adamw.param_groups:
                group["lr"] = rate
            self._adamw.step()
        if self._muon:
            self._muon.step(rate)
        for parameter in (*self._parts.values(), *self._whole.values()):
            parameter.grad = None
        for mirror in self._mirrors.values():
            mirror.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """`<parameter>|<key>` → this rank's part as a sharded tensor, or a whole tensor that one rank alone holds.

        Complete before the first step too: this is where a checkpoint is loaded into.
        """
        out: dict[str, Tensor] = {}
        for name, mirror in self._mirrors.items():
            state = self._adamw.state[mirror] if self._adamw and mirror.numel() else {}
            if not state:
                state |= {"step": torch.zeros((), dtype=torch.float32)}
                state |= {key: torch.zeros_like(mirror) for key in ("exp_avg", "exp_avg_sq")}
            for key, value in state.items():
                out[f"{name}|{key}"] = value if value.ndim == 0 else _like(value, self._parts[name])
        if self._muon:
            out |= self._muon.state()
        return out

    @torch.no_grad()
    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `state_tensors()` of the same ranks; `checkpoint.py` is for other numbers of them."""
        for name, mine in self.state_tensors().items():
            local(mine).copy_(local(tensors[name]))


def _like(part: Tensor, parameter: Tensor) -> Tensor:
    """`part`, placed as the parameter is."""
    if not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


class _OwnedMuon:
    """Muon where every matrix belongs to one rank of those that share it."""

    def __init__(self, matrices: Mapping[str, nn.Parameter], config: OptimizerConfig, meshes: Meshes) -> None:
        mesh = meshes.dense["shard"]
        self._group = mesh.get_group()
        self._ranks, self._rank = mesh.size(), mesh.get_local_rank()
        self._matrices = dict(matrices)
        self._decay = config.weight_decay
        self._owners = _share_out({name: p.shape for name, p in matrices.items()}, self._ranks)
        # The owner's copies are zero before each step, so that what torch's Muon makes of them is the update.
        self._updates = {
            name: nn.Parameter(torch.zeros(p.shape, dtype=p.dtype, device=local(p.data).device))
            for name, p in matrices.items()
            if self._owners[name] == self._rank
        }
        self._muon = (
            torch.optim.Muon(
                list(self._updates.values()),
                lr=config.learning_rate,
                momentum=config.beta2,
                weight_decay=0.0,
                adjust_lr_fn="match_rms_adamw",
            )
            if self._updates
            else None
        )

    @torch.no_grad()
    def step(self, rate: float) -> None:
        by_owner = [[name for name in self._matrices if self._owners[name] == rank] for rank in range(self._ranks)]
        mine = by_owner[self._rank]
        sent = [[self._gradient(name) for name in names] for names in by_owner]
        arrived = self._exchange(sent, [[self._rows(name, rank) for name in mine] for rank in range(self._ranks)])
        for at, name in enumerate(mine):
            self._updates[name].grad = torch.cat([parts[at] for parts in arrived])
        if self._muon:
            for group in self._muon.param_groups:
                group["lr"] = rate
            self._muon.step()
        cut = [[self._piece(self._updates[name].data, rank) for name in mine] for rank in range(self._ranks)]
        mine_of = [[self._rows(name, self._rank) for name in names] for names in by_owner]
        for names, updates in zip(by_owner, self._exchange(cut, mine_of), strict=True):
            for name, update in zip(names, updates, strict=True):
                part = local(self._matrices[name].data)
                part.mul_(1.0 - rate * self._decay).add_(update)
        for update in self._updates.values():
            update.zero_()
            update.grad = None

    def state(self) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        for name, update in self._updates.items():
            assert self._muon is not None
            state = self._muon.state[update]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(update)
            out[f"{name}|momentum_buffer"] = state["momentum_buffer"]
        return out

    def _gradient(self, name: str) -> Tensor:
        parameter = self._matrices[name]
        return torch.zeros_like(local(parameter.data)) if parameter.grad is None else local(parameter.grad)

    def _rows(self, name: str, rank: int) -> tuple[int, ...]:
        """Shape of what `rank` holds of a matrix."""
        shape = self._matrices[name].shape
        return (_span(shape[0], rank, self._ranks)[1], *shape[1:])

    def _piece(self, whole: Tensor, rank: int) -> Tensor:
        start, length = _span(len(whole), rank, self._ranks)
        return whole.narrow(0, start, length)

    def _exchange(self, sent: list[list[Tensor]], shapes: list[list[tuple[int, ...]]]) -> list[list[Tensor]]:
        """Lists of tensors to each rank → lists from each rank, whose shapes are known."""
        outgoing = [sum(tensor.numel() for tensor in tensors) for tensors in sent]
        sizes = [[int(torch.Size(shape).numel()) for shape in row] for row in shapes]
        flat = torch.cat([tensor.reshape(-1) for tensors in sent for tensor in tensors])
        received = flat.new_empty(sum(map(sum, sizes)))
        distributed.all_to_all_single(received, flat, [sum(row) for row in sizes], outgoing, group=self._group)
        parts = iter(received.split([size for row in sizes for size in row]))
        return [[next(parts).view(shape) for shape in row] for row in shapes]


def _span(rows: int, rank: int, ranks: int) -> tuple[int, int]:
    """First row and number of rows that a rank holds of a tensor cut along dimension 0."""
    length, start = cast(Any, Shard).local_shard_size_and_offset(rows, ranks, rank)
    return int(start), int(length)


def _share_out(shapes: Mapping[str, torch.Size], ranks: int) -> dict[str, int]:
    """Owners such that the work of orthogonalisation is even: the costliest first, each to the idlest rank."""
    work = [0] * ranks
    owners = {}
    for name in sorted(shapes, key=lambda name: (-_work(shapes[name]), name)):
        owner = min(range(ranks), key=lambda rank: (work[rank], rank))
        owners[name] = owner
        work[owner] += _work(shapes[name])
    return owners


def _work(shape: torch.Size) -> int:
    """Newton-Schulz multiplies by the smaller Gram matrix."""
    return shape[0] * shape[1] * min(shape)
