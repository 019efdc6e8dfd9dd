"""FLOPs of a step, derived from the model's shape, and model FLOPs utilisation (MFU).

Only the model's own arithmetic counts: recomputing a layer in the backward pass does not. The peak is the fastest
matrix product measured on this device, not a data sheet value. A measurement exists for every device; other load on the
machine lowers it.

Per token, a weight costs 2 FLOPs forward, 2 for the gradient of the input and, where it is trained, 2 for its own
gradient. Attention multiplies queries with keys and scores with values, for each pair of tokens of a row that attend to
each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.learning import memory
from trainer.learning.clock import now
from trainer.router_replay import EXPERTS

ROUNDS = 8
SIDES = {"cuda": 4096}
SIDE = 768
"""Side of the multiplied matrices: large enough to be fast, small enough to take a moment."""
Precision = Literal["float32", "bfloat16"]
FORMATS: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
EXPERT = re.compile(r"(^|\.)experts(\.|$)")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The parts of a batch that cost compute."""

    tokens: int
    """Tokens that run through the layers."""
    predicted: int
    """Positions with a prediction over the vocabulary."""
    pairs: int
    """Pairs of tokens in attention, including each token with itself."""

    @classmethod
    def of_rows(cls, lengths: Iterable[int], predicted: int) -> Tokens:
        """Work of causal rows that are computed separately."""
        counts = list(lengths)
        return cls(sum(counts), predicted, sum(n * (n + 1) // 2 for n in counts))

    @classmethod
    def of_prefixes(cls, positions: Iterable[Tensor], predicted: int) -> Tokens:
        """Work of prefixes that are computed once each, from the position of each one's last token."""
        each = list(positions)
        return cls(sum(map(len, each)), predicted, sum(int(one.sum()) + len(one) for one in each))

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.tokens + other.tokens, self.predicted + other.predicted, self.pairs + other.pairs)


@dataclass(frozen=True, slots=True)
class Shape:
    """Forward multiplications per token, prediction and pair; `learning_*` count only those by trained weights."""

    body: float
    head: float
    pair: float
    learning_body: float
    learning_head: float

    def flops(self, work: Tokens, *, reference: bool = False) -> float:
        """FLOPs of a step over these tokens; `reference` adds a frozen reference that scores them too."""
        forward = self.body * work.tokens + self.head * work.predicted + self.pair * work.pairs
        gradients = self.learning_body * work.tokens + self.learning_head * work.predicted + self.pair * work.pairs
        return 2.0 * ((3 if reference else 2) * forward + gradients)


def shape_of(model: PreTrainedModel) -> Shape:
    """Shape from weights and configuration. Only the experts that a token is routed to count."""
    config = model.config
    experts = next((int(found) for name in EXPERTS if (found := getattr(config, name, None))), 0)
    share = int(getattr(config, "num_experts_per_tok", 1)) / experts if experts else 1.0
    embedding, head = (_weight(layer) for layer in (model.get_input_embeddings(), model.get_output_embeddings()))
    body = learning = 0.0
    for name, weight in model.named_parameters():
        if weight.ndim < 2 or weight is embedding or weight is head:
            continue
        used = weight.numel() * (share if EXPERT.search(name) else 1.0)
        body += used
        learning += used if weight.requires_grad else 0.0
    heads = int(config.num_attention_heads)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    keys, values = (int(getattr(config, name, None) or size) for name in ("qk_head_dim", "v_head_dim"))
    of_head = float(head.numel()) if head is not None else 0.0
    learning_head = of_head if head is not None and head.requires_grad else 0.0
    return Shape(body, of_head, float(config.num_hidden_layers * heads * (keys + values)), learning, learning_head)


def _weight(layer: nn.Module | None) -> Tensor | None:
    found = getattr(layer, "weight", None)
    return found if isinstance(found, Tensor) else None


class FlopsCounter:
    """FLOPs and MFU of one trained model."""

    def __init__(self, model: PreTrainedModel, *, precision: Precision = "float32") -> None:
        """`precision` is the compute format (`parallel.precision`); MFU is relative to that format's peak."""
        self.shape = shape_of(model)
        self.number_format = FORMATS[precision]

    def metrics(
        self, work: Tokens, seconds: float, *, device: torch.device, ranks: int = 1, reference: bool = False
    ) -> dict[str, float]:
        """Metrics of a step that took `seconds` on `ranks` devices like this one. `memory/trainer` is this process's
        own."""
        speed = self.shape.flops(work, reference=reference) / max(seconds, 1e-9)
        peak = fastest_product(device, self.number_format)
        return {
            "speed/model_flops": speed,
            "speed/mfu": speed / (ranks * peak),
            "memory/trainer": float(memory.take_peak(device)),
        }


@cache
def fastest_product(device: torch.device, number_format: torch.dtype) -> float:
    """Peak FLOPs per second over a few square matrix products; measured once per process."""
    side = SIDES.get(device.type, SIDE)
    ramp = torch.arange(side * side, device=device, dtype=torch.float32)
    factor = ramp.sin().view(side, side).to(number_format)
    best = float("inf")
    for _ in range(ROUNDS):
        began = now(device)
        torch.mm(factor, factor)
        best = min(best, now(device) - began)
    return 2.0 * side**3 / best
