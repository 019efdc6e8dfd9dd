"""Cutting a policy over the ranks with FSDP2: layer by layer, experts on a mesh of their own.

Gradients are summed over ranks, never averaged: the loss has a constant divisor over the whole batch, so the sum of the
ranks' gradients is the gradient of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from transformers import PreTrainedModel

from trainer.learning.layers import compile_each, compute_again, layers_of
from trainer.parallel import context, experts, load
from trainer.parallel.errors import ParallelRefused
from trainer.parallel.mesh import Meshes


class Rooted(nn.Module):
    """The policy inside a module whose forward pass is any function of it: FSDP gathers the root's weights around it.

    Scoring reaches into the policy (decoder, then the vocabulary projection at some positions only), which would miss
    the hooks of the policy's own forward. The function returns tensors, a tuple or a dict of them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(self.model, *args, **kwargs)


def shard(model: PreTrainedModel, meshes: Meshes, *, folder: Path | None = None) -> Rooted:
    """Cut `model` in place; one of `load.py` is read from `folder` then.

    Raises ParallelRefused for a policy that this code does not know how to cut, PolicyUnreadable.
    """
    config = meshes.config
    context.prepare(model, meshes)
    half = config.precision == "bfloat16"
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if half else None, reduce_dtype=torch.float32 if half else None
    )
    layers = layers_of(model)
    if not layers:
        raise ParallelRefused(f"{type(model).__name__} has no list of decoder layers to cut; set parallel.ranks to 1")
    if config.checkpoint_activations:
        compute_again(model)
    if config.experts > 1:
        experts.spread(model, meshes, policy)
    if config.compile:
        compile_each(model)
    for layer in layers:
        fully_shard(layer, mesh=meshes.dense, mp_policy=policy)
    root = Rooted(model)
    # The root gets tokens and log-probabilities, which no cast may touch.
    outer = MixedPrecisionPolicy(policy.param_dtype, policy.reduce_dtype, cast_forward_inputs=False)
    fully_shard(root, mesh=meshes.dense, mp_policy=outer)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)
    if folder is not None:
        load.fill(model, folder, meshes.device)
    # Also where they are there already: FSDP then takes the parts that were read for its own, and pads them once, now.
    # Later it would pad copies, and an optimizer that was made in between would go on with the old ones.
    root.to(meshes.device)
    return root


def whole_state(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Name and whole tensor of a state, one at a time on the CPU; all ranks iterate together. Tied ones share memory.

    The tensors are copies: they stay what they are while training goes on.
    """
    tied: dict[int, Tensor] = {}
    for name, tensor in state.items():
        if id(tensor) not in tied:
            own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            found = whole(tensor).cpu()
            alias = found.untyped_storage().data_ptr() == own.untyped_storage().data_ptr()  # one rank has it all
            tied[id(tensor)] = found.clone() if alias else found
        yield name, tied[id(tensor)]


@torch.no_grad()
def deal_out(whole_ones: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Whole tensors, which every rank has, into each rank's parts of `state`. Raises KeyError."""
    for name, target in state.items():
        given = whole_ones[name]
        if isinstance(target, DTensor):
            placed = distribute_tensor(
                given.to(target.device), target.device_mesh, target.placements, src_data_rank=None
            )
            target.to_local().copy_(placed.to_local())
        else:
            target.copy_(given)


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor put together on every rank; others as they are."""
    full = getattr(tensor, "full_tensor", None)
    return cast(Tensor, full()).detach() if full else tensor.detach()


def is_cut(tensor: Any) -> bool:
    return any(isinstance(placement, Shard) for placement in getattr(tensor, "placements", ()))
