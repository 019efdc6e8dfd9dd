"""How much arithmetic a step needs by the shape of its model, and what share of the device's peak that is (MFU).

Counted is what the model needs: computing a layer again in the backward pass is no work done. The peak is the fastest
product of two matrices that this device did when it was asked once, not a number of a data sheet: it is there for every
device, and other work on the machine makes it smaller than it could be.

A product of weights with a token costs 2 FLOPs a weight forward, as many for the gradient of what came in, and as many for
that of the weights where they learn. Attention multiplies queries with keys and scores with values, for each pair of tokens
of a row that see each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.learning import memory
from trainer.learning.clock import now
from trainer.replay import EXPERTS

ROUNDS = 8
SIDES = {"cuda": 4096}
SIDE = 768
"""Of the matrices that are multiplied: large enough to be fast, a moment of work."""
EXPERT = re.compile(r"(^|\.)experts(\.|$)")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What of a batch costs something."""

    tokens: int
    """Run through the layers."""
    predicted: int
    """Of these, the positions at which the vocabulary is predicted."""
    pairs: int
    """Of tokens that attention looks at, a token and itself included."""

    @classmethod
    def of_rows(cls, lengths: Iterable[int], predicted: int) -> Tokens:
        """Causal rows, each computed for itself."""
        counts = list(lengths)
        return cls(sum(counts), predicted, sum(n * (n + 1) // 2 for n in counts))


@dataclass(frozen=True, slots=True)
class Shape:
    """Multiplications that one token, one prediction and one pair need forward; and of the first two, those by weights that
    learn."""

    body: float
    head: float
    pair: float
    learning_body: float
    learning_head: float

    def flops(self, work: Tokens, *, reference: bool = False) -> float:
        """Of a step over these tokens; with a frozen reference that scores them too."""
        forward = self.body * work.tokens + self.head * work.predicted + self.pair * work.pairs
        gradients = self.learning_body * work.tokens + self.learning_head * work.predicted + self.pair * work.pairs
        return 2.0 * ((3 if reference else 2) * forward + gradients)


def shape_of(model: PreTrainedModel) -> Shape:
    """By its weights and its configuration. Of experts those count that a token is sent to."""
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


class Effort:
    """Of one model that learns."""

    def __init__(self, model: PreTrainedModel, *, formats: tuple[torch.dtype, ...] = (torch.float32,)) -> None:
        """`formats`: what its products are computed in, the fastest of which counts."""
        self.shape = shape_of(model)
        self.formats = formats

    def metrics(
        self, work: Tokens, seconds: float, *, device: torch.device, ranks: int = 1, reference: bool = False
    ) -> dict[str, float]:
        """Of a step that took so long on `ranks` devices like this one. (`memory/trainer` is this process's own.)"""
        speed = self.shape.flops(work, reference=reference) / max(seconds, 1e-9)
        peak = max(fastest_product(device, one) for one in self.formats)
        return {
            "speed/model_flops": speed,
            "speed/mfu": speed / (ranks * peak),
            "memory/trainer": float(memory.take_peak(device)),
        }


@cache
def fastest_product(device: torch.device, number_format: torch.dtype) -> float:
    """FLOPs a second of the best of a few products of square matrices; measured once a process."""
    side = SIDES.get(device.type, SIDE)
    ramp = torch.arange(side * side, device=device, dtype=torch.float32)
    factor = ramp.sin().view(side, side).to(number_format)
    best = float("inf")
    for _ in range(ROUNDS):
        began = now(device)
        torch.mm(factor, factor)
        best = min(best, now(device) - began)
    return 2.0 * side**3 / best
