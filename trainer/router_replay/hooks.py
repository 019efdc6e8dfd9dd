"""Hooks on a model's routers that record their choices or replay recorded ones.

Replay replaces the experts and nothing else. Scores come from the model's own logits, so the gradient reaches the
routers as if they had made the choice.

The threshold filter (published idea, our threshold): a replayed expert stays while its score is at least `plausibility`
times the smallest score among the router's own choices. Rejected experts are replaced by the router's best unused
choices, so every expert in use reaches that threshold.

Shape suffixes: B rows, T length, L MoE layers, N = B·T tokens, E experts, K experts a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from trainer.routed_experts import Experts
from trainer.router_replay.families import Router, routers
from trainer.router_replay.validate import PolicyShape


@dataclass(slots=True)
class LayerCounts:
    """Counts of one layer: tokens with a record; those where the router's own choice differs; experts replaced."""

    tokens: int = 0
    differs: int = 0
    replaced: int = 0
    load: list[int] = field(default_factory=list)
    """Tokens per expert, among tokens with a record."""

    @property
    def imbalance(self) -> float:
        """Excess load of the busiest expert over the mean, relative to the mean."""
        return max(self.load) * len(self.load) / sum(self.load) - 1.0 if sum(self.load) else 0.0


@dataclass(slots=True)
class RoutingCounts:
    tokens: int = 0
    """Number of routed tokens."""
    top_k: int = 0
    layers: list[LayerCounts] = field(default_factory=list)

    def add(self, other: RoutingCounts) -> None:
        """Add the counts of another rank, which routed other tokens through the same layers."""
        self.tokens += other.tokens
        self.top_k = max(self.top_k, other.top_k)
        self.layers += [LayerCounts() for _ in other.layers[len(self.layers) :]]
        for mine, theirs in zip(self.layers, other.layers, strict=False):
            mine.tokens += theirs.tokens
            mine.differs += theirs.differs
            mine.replaced += theirs.replaced
            mine.load = [a + b for a, b in zip_longest(mine.load, theirs.load, fillvalue=0)]

    def metrics(self) -> dict[str, float]:
        """Ratios for a run's metrics (`learning/metrics.py`), over all layers and by layer."""
        if not self.layers or not self.tokens:
            return {}
        known = sum(layer.tokens for layer in self.layers)
        out = {"routing/replayed": known / (self.tokens * len(self.layers))}
        if known:
            out["routing/differs"] = sum(layer.differs for layer in self.layers) / known
            out["routing/replaced"] = sum(layer.replaced for layer in self.layers) / (known * self.top_k)
            out["routing/imbalance"] = sum(layer.imbalance for layer in self.layers) / len(self.layers)
            for index, layer in enumerate(self.layers):
                out[f"routing/imbalance/{index:02d}"] = layer.imbalance
                out[f"routing/differs/{index:02d}"] = layer.differs / max(1, layer.tokens)
                out[f"routing/replaced/{index:02d}"] = layer.replaced / max(1, layer.tokens * self.top_k)
        return out


class Recorder:
    """Records the experts of every forward pass of `model`."""

    def __init__(self, model: nn.Module) -> None:
        """Install the hooks. Raises RouterUnknown."""
        self.routers = routers(model)
        self._chosen: list[Tensor] = [torch.empty(0) for _ in self.routers]
        for index, router in enumerate(self.routers):
            router.module.register_forward_hook(self._hook(index))

    def chosen(self) -> Tensor:
        """Experts of the last pass: int64 [N, L, K]."""
        return torch.stack(self._chosen, 1)

    def _hook(self, index: int) -> Any:
        def hook(module: nn.Module, inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
            self._chosen[index] = output[2].detach()

        return hook


class Replay:
    """Makes the routers of `model` replay recorded choices inside `forced`."""

    def __init__(self, model: nn.Module, *, plausibility: float) -> None:
        """Install the hooks. Raises RouterUnknown."""
        self.routers = routers(model)
        self.plausibility = plausibility
        self.counts = RoutingCounts()
        experts, top_k = (
            tuple(router.experts for router in self.routers),
            max((r.top_k for r in self.routers), default=0),
        )
        self._shape = PolicyShape(0, experts, top_k)  # checks experts only, so its vocabulary is empty
        self._forced_LNK: Tensor | None = None
        self._within = False
        for index, router in enumerate(self.routers):
            router.module.register_forward_hook(self._hook(index, router))

    @property
    def active(self) -> bool:
        """Whether the model has routers."""
        return bool(self.routers)

    @contextmanager
    def forced(self, experts_BTLK: Tensor | None) -> Iterator[None]:
        """Route with these experts inside the block. It must include backward, because recomputation must choose the
        same.

        int64, negative where no choice was recorded. None: no records, and the routers are free.
        """
        if experts_BTLK is not None:
            self._forced_LNK = experts_BTLK.flatten(0, 1).transpose(0, 1)
        self._within = True
        try:
            yield
        finally:
            self._forced_LNK, self._within = None, False

    def take_counts(self) -> RoutingCounts:
        """Return and reset the counts since the last call."""
        taken, self.counts = self.counts, RoutingCounts()
        return taken

    def check(self, experts: Experts) -> None:
        """Raises ReplayRefused unless these can be choices of this model: [rows, layers, top_k], all in range."""
        self._shape.check_experts(experts)

    def _hook(self, index: int, router: Router) -> Any:
        def hook(
            module: nn.Module, inputs: Any, output: tuple[Tensor, Tensor, Tensor]
        ) -> tuple[Tensor, Tensor, Tensor] | None:
            if not self._within:
                return None
            logits_NE, _, own_NK = output
            if self._forced_LNK is None:
                self._count(index, LayerCounts(), own_NK)
                return None
            scores_NE = router.family.scores(logits_NE)
            forced_NK = self._forced_LNK[index]
            with torch.no_grad():
                used_NK, layer = choose(scores_NE.detach(), own_NK, forced_NK, self.plausibility)
                known_N = (forced_NK >= 0).all(-1)
                layer.load = torch.bincount(used_NK[known_N].flatten(), minlength=router.experts).tolist()
            self._count(index, layer, own_NK)
            return logits_NE, router.weights(logits_NE, scores_NE, used_NK), used_NK

        return hook

    # Numbers that change each time would have a compiled layer compiled again.
    @torch.compiler.disable  # type: ignore[untyped-decorator] # torch's own
    def _count(self, index: int, layer: LayerCounts, own_NK: Tensor) -> None:
        counts = self.counts
        while len(counts.layers) < len(self.routers):
            counts.layers.append(LayerCounts())
        if index == 0:
            counts.tokens += own_NK.shape[0]
        counts.top_k = own_NK.shape[1]
        sums = counts.layers[index]
        sums.tokens += layer.tokens
        sums.differs += layer.differs
        sums.replaced += layer.replaced
        sums.load = [a + b for a, b in zip_longest(sums.load, layer.load, fillvalue=0)]


def choose(scores_NE: Tensor, own_NK: Tensor, forced_NK: Tensor, plausibility: float) -> tuple[Tensor, LayerCounts]:
    """Experts to use: recorded ones above the threshold, else the router's own."""
    known_N = (forced_NK >= 0).all(-1)
    wanted_NK = torch.where(known_N[:, None], forced_NK, own_NK)
    own_scores_NK = scores_NE.gather(1, own_NK)
    kept_NK = scores_NE.gather(1, wanted_NK) >= plausibility * own_scores_NK.min(-1, keepdim=True).values
    used_NK = wanted_NK if bool(kept_NK.all()) else _filled(wanted_NK, kept_NK, own_NK, own_scores_NK, scores_NE)
    differs_N = (wanted_NK.sort(-1).values != own_NK.sort(-1).values).any(-1)
    return used_NK, LayerCounts(int(known_N.sum()), int(differs_N.sum()), int((~kept_NK).sum()))


def _filled(wanted_NK: Tensor, kept_NK: Tensor, own_NK: Tensor, own_scores_NK: Tensor, scores_NE: Tensor) -> Tensor:
    """`wanted` with rejected experts replaced by the router's own choices, best first, without duplicates."""
    taken_NE = torch.zeros_like(scores_NE, dtype=torch.bool).scatter_(1, wanted_NK, kept_NK)
    free_NK = own_scores_NK.masked_fill(taken_NE.gather(1, own_NK), float("-inf"))
    best_NK = own_NK.gather(1, free_NK.argsort(dim=-1, descending=True, stable=True))
    place_NK = ((~kept_NK).cumsum(-1) - 1).clamp(min=0)
    return torch.where(kept_NK, wanted_NK, best_NK.gather(1, place_NK))
