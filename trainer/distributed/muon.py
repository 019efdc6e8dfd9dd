"""AdamW and Muon over sharded weights, with optimizer state beside the weights.

AdamW is elementwise, so each rank runs it on its own part. Muon orthogonalises whole matrices. Each matrix has an owner
among the ranks that share it: gradients travel to the owners in one all-to-all, the owner runs torch's Muon on full
gradients and keeps the momentum, and the updates travel back the same way. Each momentum exists once, and no rank ever
holds more whole matrices than its share.

Experts stacked in one parameter [E, m, n] are sharded along E, so most ranks hold whole matrices. Where expert
parallelism shards rows too, the ranks that share a part of the experts exchange rows of the updates; the momentum stays
with the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from trainer.config import OptimizerConfig
from trainer.distributed.parallel_dims import Meshes
from trainer.learning.muon import StackedMuon, scaled_orthogonal
from trainer.learning.optimizers import NamedOptimizer, muon_matrices, muon_stacks


def local(tensor: Tensor) -> Tensor:
    """This rank's part, sharing memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def clip(model: nn.Module, meshes: Meshes, max_norm: float) -> float:
    """Clip all gradients to a global norm of at most `max_norm`; return the norm before clipping."""
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
    if norm > max_norm:
        torch._foreach_mul_([part for part in gradients if part.numel()], max_norm / (norm + 1e-6))
    return norm


def _copies(tensor: Tensor, meshes: Meshes) -> int:
    """Number of ranks that hold the same part."""
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
        stacks = muon_stacks(model) if config.name == "muon" else set()
        self._muon = _OwnedMuon(self._whole, config, meshes) if self._whole else None
        # Plain tensors over the same memory: no mesh has a say in what is done number by number.
        self._mirrors = {name: nn.Parameter(local(p.data)) for name, p in self._parts.items()}
        self._stacks = {name for name, p in self._parts.items() if p in stacks}
        here = [mirror for name, mirror in self._mirrors.items() if mirror.numel() and name not in self._stacks]
        # None where a rank has no part of anything, or all are matrices (Muon on adapters).
        self._adamw = (
            torch.optim.AdamW(
                here,
                lr=config.learning_rate,
                betas=(config.beta1, config.beta2),
                weight_decay=config.weight_decay if config.name == "adamw" else 0.0,
                fused=True,
            )
            if here
            else None
        )
        self._stacked = [
            StackedMuon(
                [self._mirrors[name]],
                lr=config.learning_rate,
                momentum=config.beta2,
                weight_decay=config.weight_decay,
                orthogonal=_orthogonal_of(self._parts[name]),
            )
            for name in self._stacks
            if self._mirrors[name].numel()
        ]

    def step(self, rate: float) -> None:
        """Apply the gradients at learning rate `rate` and drop them. A collective call."""
        for name, mirror in self._mirrors.items():
            gradient = self._parts[name].grad
            # Of stacks every rank takes part in the exchange.
            missing = torch.zeros_like(mirror) if name in self._stacks else None
            mirror.grad = missing if gradient is None else local(gradient)
        for optimizer in [self._adamw, *self._stacked] if self._adamw else self._stacked:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        if self._muon:
            self._muon.step(rate)
        for parameter in (*self._parts.values(), *self._whole.values()):
            parameter.grad = None
        for mirror in self._mirrors.values():
            mirror.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """`<parameter>|<key>` → this rank's part as a sharded tensor, or a full tensor that only one rank holds.

        Complete even before the first step, because checkpoints are loaded into it.
        """
        out: dict[str, Tensor] = {}
        muon = {mirror: one.state[mirror] for one in self._stacked for mirror in one.param_groups[0]["params"]}
        for name, mirror in self._mirrors.items():
            state: dict[str, Tensor] = {}
            if mirror.numel():
                state = muon[mirror] if name in self._stacks else self._adamw.state[mirror] if self._adamw else {}
            if not state and name in self._stacks:
                state["momentum_buffer"] = torch.zeros_like(mirror)
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
        """Restore `state_tensors()` of the same ranks; `checkpoint.py` handles a changed world size."""
        for name, mine in self.state_tensors().items():
            local(mine).copy_(local(tensors[name]))


def _like(part: Tensor, parameter: Tensor) -> Tensor:
    """`part` with the placement of the parameter."""
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
    """Muon in which one of the ranks that share a matrix owns it."""

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
        """Shape of the part of a matrix that `rank` holds."""
        shape = self._matrices[name].shape
        return (_span(shape[0], rank, self._ranks)[1], *shape[1:])

    def _piece(self, whole: Tensor, rank: int) -> Tensor:
        start, length = _span(len(whole), rank, self._ranks)
        return whole.narrow(0, start, length)

    def _exchange(self, sent: list[list[Tensor]], shapes: list[list[tuple[int, ...]]]) -> list[list[Tensor]]:
        """Exchange lists of tensors between all ranks; the received shapes are known."""
        outgoing = [sum(tensor.numel() for tensor in tensors) for tensors in sent]
        sizes = [[int(torch.Size(shape).numel()) for shape in row] for row in shapes]
        flat = torch.cat([tensor.reshape(-1) for tensors in sent for tensor in tensors])
        received = flat.new_empty(sum(map(sum, sizes)))
        distributed.all_to_all_single(received, flat, [sum(row) for row in sizes], outgoing, group=self._group)
        parts = iter(received.split([size for row in sizes for size in row]))
        return [[next(parts).view(shape) for shape in row] for row in shapes]


def _orthogonal_of(stack: Tensor) -> Callable[[Tensor], Tensor]:
    """`scaled_orthogonal` for this rank's part of `stack` [E, m, n], which is sharded along E, along m, or both."""
    if not isinstance(stack, DTensor):
        return scaled_orthogonal
    across = [at for at, placement in enumerate(stack.placements) if isinstance(placement, Shard) and placement.dim]
    assert all(cast(Shard, stack.placements[at]).dim == 1 for at in across) and len(across) <= 1, stack.placements
    if not across or stack.device_mesh.size(across[0]) == 1:
        return scaled_orthogonal
    group = stack.device_mesh.get_group(across[0])
    return lambda update: _orthogonal_across(update, group)


def _orthogonal_across(part_Emn: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """Rows of updates → rows of scaled orthogonal updates. Each rank of `group` has equally many rows m of the same E
    matrices, and orthogonalises some of the matrices in full.
    """
    ranks = group.size()
    experts, rows, columns = part_Emn.shape
    owned = [_span(experts, rank, ranks)[1] for rank in range(ranks)]
    mine = owned[group.rank()]
    arrived = part_Emn.new_empty(ranks * mine, rows, columns)
    distributed.all_to_all_single(arrived, part_Emn.contiguous(), [mine] * ranks, owned, group=group)
    whole = arrived.view(ranks, mine, rows, columns).transpose(0, 1).reshape(mine, ranks * rows, columns)
    done = scaled_orthogonal(whole).view(mine, ranks, rows, columns).transpose(0, 1)
    back = done.new_empty(experts, rows, columns)
    distributed.all_to_all_single(back, done.reshape(ranks * mine, rows, columns), owned, [mine] * ranks, group=group)
    return back


def _span(rows: int, rank: int, ranks: int) -> tuple[int, int]:
    """First row and number of rows of a rank, for a tensor sharded along dimension 0."""
    length, start = cast(Any, Shard).local_shard_size_and_offset(rows, ranks, rank)
    return int(start), int(length)


def _share_out(shapes: Mapping[str, torch.Size], ranks: int) -> dict[str, int]:
    """Assign owners so that the orthogonalisation work is balanced: costliest first, each to the least loaded rank."""
    work = [0] * ranks
    owners = {}
    for name in sorted(shapes, key=lambda name: (-_work(shapes[name]), name)):
        owner = min(range(ranks), key=lambda rank: (work[rank], rank))
        owners[name] = owner
        work[owner] += _work(shapes[name])
    return owners


def _work(shape: torch.Size) -> int:
    """Cost of Newton-Schulz, which multiplies by the smaller Gram matrix."""
    return shape[0] * shape[1] * min(shape)
