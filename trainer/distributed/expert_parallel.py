"""Expert parallelism: each rank of a group holds some experts of every layer, and tokens travel to them and back.

The library's mixture-of-experts classes call a pluggable function to compute their experts. The one here sends each
token to the ranks of its experts (all-to-all), computes there with the library's grouped product, and sends the results
back. Routers are unchanged, so replayed choices (`trainer/router_replay`) work like any others.

Shape suffixes: N tokens, K experts a token, S = N·K pairs of token and expert, R pairs received, E experts, D width.
"""

from __future__ import annotations

from types import MethodType, SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from transformers import PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

from trainer.distributed.parallel_dims import Meshes
from trainer.errors import ParallelRefused

IMPLEMENTATION = "all_to_all"
WEIGHTS = ("gate_up_proj", "down_proj")


def layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Name and stacked experts of every mixture-of-experts layer."""
    return [(name, module) for name, module in model.named_modules() if name.endswith(".experts") and _stacked(module)]


def _stacked(module: nn.Module) -> bool:
    return all(isinstance(getattr(module, name, None), nn.Parameter) for name in WEIGHTS)


def spread(model: PreTrainedModel, meshes: Meshes, policy: MixedPrecisionPolicy) -> None:
    """Shard the experts of `model` over the expert mesh, in place. Raises ParallelRefused."""
    ranks = meshes.config.ep
    found = layers(model)
    if not found:
        raise ParallelRefused(f"parallel.ep={ranks}: {type(model).__name__} has no experts; set it to 1")
    model.set_experts_implementation(IMPLEMENTATION)
    mesh = meshes.experts["expert"]
    for name, module in found:
        _check(name, module, meshes)
        for weight in WEIGHTS:
            whole = cast(nn.Parameter, getattr(module, weight))
            part = distribute_tensor(whole.data, mesh, [Shard(0)], src_data_rank=None)
            setattr(module, weight, nn.Parameter(part, requires_grad=whole.requires_grad))
        cast(Any, module).expert_group = mesh.get_group()
        fully_shard(
            module, mesh=meshes.experts["expert_shard"], mp_policy=policy, shard_placement_fn=lambda parameter: Shard(1)
        )


def _check(name: str, module: Any, meshes: Meshes) -> None:
    ranks = meshes.config.ep
    count, rows, inner = (int(size) for size in module.down_proj.shape)
    if count % ranks:
        raise ParallelRefused(f"parallel.ep={ranks} does not divide the {count} experts of {name}; choose a divisor")
    for world in meshes.config.world_sizes:  # all that may come to be: not found out when a machine is lost
        across = world // ranks
        if rows % across or (2 * inner) % across:
            raise ParallelRefused(
                f"{name}: experts of width {inner} and {rows} cannot be cut evenly over the {across} ranks that share each"
                f"{'' if world == meshes.world else f' where {world} ranks train'}; raise parallel.ep (now {ranks})"
            )
    if module.has_bias or module.is_transposed or not module.has_gate:
        raise ParallelRefused(
            f"{name} ({type(module).__name__}) is not of the kind that is spread; set parallel.ep to 1"
        )


def all_to_all_experts(self: Any, hidden_ND: Tensor, index_NK: Tensor, weights_NK: Tensor) -> Tensor:
    """Experts function of the library's interface: tokens [N, D], chosen experts and their weights [N, K] → [N, D]."""
    group = self.expert_group
    ranks, tokens, top_k = group.size(), *index_NK.shape
    here = self.num_experts // ranks
    order_S = index_NK.reshape(-1).argsort(stable=True)
    send_E = torch.bincount(index_NK.reshape(-1), minlength=self.num_experts)
    receive_E = torch.empty_like(send_E)
    """Indexed by sending rank, then by local expert."""
    distributed.all_to_all_single(receive_E, send_E, group=group)
    sent, received = (counts.view(ranks, here).sum(1).tolist() for counts in (send_E, receive_E))
    arrived_RD = cast(Tensor, _Exchange.apply(hidden_ND[order_S // top_k], sent, received, group))
    expert_R = torch.arange(here, device=hidden_ND.device).repeat(ranks).repeat_interleave(receive_E)
    done_RD = _compute(self, here, arrived_RD, expert_R)
    back_SD = cast(Tensor, _Exchange.apply(done_RD, received, sent, group))
    weighted_SD = back_SD * weights_NK.reshape(-1)[order_S, None]
    place_S = torch.empty_like(order_S).scatter_(0, order_S, torch.arange(len(order_S), device=order_S.device))
    return weighted_SD[place_S].view(tokens, top_k, -1).sum(1).to(hidden_ND.dtype)


ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, all_to_all_experts)


def _compute(module: Any, here: int, tokens_RD: Tensor, expert_R: Tensor) -> Tensor:
    """Compute this rank's experts, with the library's code on the local weights."""
    part: Any = SimpleNamespace(
        num_experts=here,
        has_gate=True,
        has_bias=False,
        is_transposed=False,
        has_post_expert_norm=module.has_post_expert_norm,
        _is_expert_parallel=False,
        act_fn=module.act_fn,
        **{name: cast(DTensor, getattr(module, name)).to_local() for name in WEIGHTS},
    )
    part._apply_gate = MethodType(type(module)._apply_gate, part)
    if not len(tokens_RD):  # nobody chose an expert of ours: no product, yet the weights take part in the backward pass
        return tokens_RD + 0.0 * sum(getattr(part, name).sum() for name in WEIGHTS)
    ones_R1 = torch.ones_like(tokens_RD[:, :1])
    return grouped_mm_experts_forward(part, tokens_RD, expert_R[:, None], ones_R1)


class _Exchange(torch.autograd.Function):
    """Exchange rows with other ranks; gradients return the same way."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: distributed.ProcessGroup
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _exchange(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchange(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def _exchange(rows: Tensor, sent: list[int], received: list[int], group: distributed.ProcessGroup) -> Tensor:
    out = rows.new_empty(sum(received), *rows.shape[1:])
    distributed.all_to_all_single(out, rows.contiguous(), received, sent, group=group)
    return out
