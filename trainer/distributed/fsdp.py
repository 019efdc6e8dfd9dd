"""Shards a policy over the ranks with FSDP2, layer by layer; experts use a mesh of their own.

Gradients are summed over ranks, never averaged. The loss has a constant divisor over the whole batch, so the sum of the
ranks' gradients is the gradient of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from trainer.distributed import context_parallel, expert_parallel, load
from trainer.distributed.parallel_dims import Meshes
from trainer.errors import ParallelRefused
from trainer.learning.activation_checkpointing import apply_activation_checkpointing, compile_each, layers_of


class Rooted(nn.Module):
    """Wrapper whose forward pass is any function of the policy; FSDP gathers the root's weights around it.

    Scoring calls parts of the policy (decoder, then the vocabulary projection at some positions only), which would
    bypass the hooks of the policy's own forward. The function returns tensors, a tuple or a dict of them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(self.model, *args, **kwargs)


def shard(model: PreTrainedModel, meshes: Meshes, *, folder: Path | None = None) -> Rooted:
    """Shard `model` in place; a model of `load.py` is then read from `folder`.

    Raises ParallelRefused for a policy of unsupported structure, PolicyUnreadable.
    """
    config = meshes.config
    context_parallel.prepare(model, meshes)
    half = config.compute_format == "bfloat16"
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if half else None, reduce_dtype=torch.float32 if half else None
    )
    layers = layers_of(model)
    if not layers:
        raise ParallelRefused(
            f"{type(model).__name__} has no list of decoder layers to cut; set parallel.world_size to 1"
        )
    if config.activation_checkpointing:
        apply_activation_checkpointing(model)
    if config.ep > 1:
        expert_parallel.spread(model, meshes, policy)
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
    """Yield the full tensors of a state by name, one at a time on the CPU; all ranks iterate together.

    The tensors are copies, unaffected by further training. Tied tensors share memory.
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
def scatter_state(whole_ones: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy full tensors, which every rank has, into each rank's parts of `state`. Raises KeyError."""
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
    """Gather a sharded tensor on every rank; return other tensors unchanged."""
    full = getattr(tensor, "full_tensor", None)
    return cast(Tensor, full()).detach() if full else tensor.detach()
