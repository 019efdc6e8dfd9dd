"""Routers of the library's mixture-of-experts models, and how each maps scores to weights.

A router returns (logits [N, E], weights [N, k], experts [N, k]). Its scores are differentiable functions of the logits;
its choice is not. This file lists the differences between families and verifies them on the module before use: a
library release with different routing is refused, not silently replayed wrongly.

Shape suffixes: N tokens, E experts, K experts a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class RouterUnknown(ValueError):
    """A mixture-of-experts layer whose routing this code cannot replay."""


def softmax_scores(logits_NE: Tensor) -> Tensor:
    return torch.softmax(logits_NE, dim=-1, dtype=torch.float32)


def sigmoid_scores(logits_NE: Tensor) -> Tensor:
    """DeepSeek-V3: experts are scored independently; groups and the correction bias affect the choice, not the weights."""
    return logits_NE.sigmoid()


@dataclass(frozen=True, slots=True)
class Family:
    scores: Callable[[Tensor], Tensor]
    weights: Callable[[nn.Module, Tensor], Tensor]
    """Weights of the chosen experts from their scores [N, K]."""
    in_logits_dtype: bool = False


def _mixtral(router: nn.Module, chosen_NK: Tensor) -> Tensor:
    return chosen_NK / chosen_NK.sum(dim=-1, keepdim=True)


def _qwen(router: nn.Module, chosen_NK: Tensor) -> Tensor:
    return _mixtral(router, chosen_NK) if router.norm_topk_prob else chosen_NK


def _deepseek(router: nn.Module, chosen_NK: Tensor) -> Tensor:
    if router.norm_topk_prob:
        chosen_NK = chosen_NK / (chosen_NK.sum(dim=-1, keepdim=True) + 1e-20)
    return chosen_NK * float(router.routed_scaling_factor)  # type: ignore[arg-type]


FAMILIES = {
    "MixtralTopKRouter": Family(softmax_scores, _mixtral),
    "Qwen2MoeTopKRouter": Family(softmax_scores, _qwen, in_logits_dtype=True),
    "Qwen3MoeTopKRouter": Family(softmax_scores, _qwen, in_logits_dtype=True),
    "OlmoeTopKRouter": Family(softmax_scores, _qwen, in_logits_dtype=True),
    "DeepseekV3TopkRouter": Family(sigmoid_scores, _deepseek),
    "Glm4MoeTopkRouter": Family(sigmoid_scores, _deepseek),
}
"""Keyed by the library's class name."""


@dataclass(frozen=True, slots=True)
class Router:
    """Router of one mixture-of-experts layer."""

    name: str
    module: nn.Module
    family: Family

    @property
    def experts(self) -> int:
        return int(self.module.num_experts)  # type: ignore[arg-type]

    @property
    def top_k(self) -> int:
        return int(self.module.top_k)  # type: ignore[arg-type]

    def weights(self, logits_NE: Tensor, scores_NE: Tensor, chosen_NK: Tensor) -> Tensor:
        """Weights [N, K] of the experts `chosen_NK`, differentiable in the logits."""
        weights_NK = self.family.weights(self.module, scores_NE.gather(1, chosen_NK))
        return weights_NK.to(logits_NE.dtype) if self.family.in_logits_dtype else weights_NK


def routers(model: nn.Module) -> list[Router]:
    """Routers of `model` in layer order; empty for a dense model. Raises RouterUnknown."""
    found = []
    for name, module in model.named_modules():
        kind = type(module).__name__
        family = FAMILIES.get(kind)
        if family is None:
            if "Router" in kind and not isinstance(module, nn.ModuleList | nn.ModuleDict):
                raise RouterUnknown(
                    f"experts of {kind} ({name}) cannot be replayed; known are {', '.join(FAMILIES)}. "
                    "Turn sampling.enable_router_replay off, or add the family to trainer/router_replay/families.py"
                )
            continue
        router = Router(name, module, family)
        _prove(router)
        found.append(router)
    return found


@torch.no_grad()
def _prove(router: Router) -> None:
    """Verify that the family's formulas reproduce the module's weights bit for bit. Raises RouterUnknown."""
    weight = router.module.weight
    assert isinstance(weight, Tensor)
    if weight.is_meta:
        return
    ramp = torch.linspace(-1.0, 1.0, 4 * weight.shape[1], device=weight.device).view(4, -1).to(weight.dtype)
    logits_NE, weights_NK, own_NK = router.module(ramp)
    again_NK = router.weights(logits_NE, router.family.scores(logits_NE), own_NK)
    if not torch.equal(weights_NK, again_NK):
        raise RouterUnknown(
            f"{type(router.module).__name__} ({router.name}) weighs experts in another way than this code; the library "
            "has changed. Turn sampling.enable_router_replay off, or correct trainer/router_replay/families.py"
        )
