"""FLOPs of a step, derived from the model's shape, and model FLOPs utilisation (MFU).

Only the model's own arithmetic counts: recomputing a layer in the backward pass does not, nor does padding, a prefix that
rows share, or a pair of tokens beyond a sliding window. The peak is the fastest matrix product measured on this device in
the step's format with the step's threads, not a data sheet value. Other load on the machine, such as an engine on the same
cores, lowers a measurement, so every step measures again for a hundredth of its time and the best one counts. A step
that was faster than every product is a measurement, too.

Per token, a weight costs 2 FLOPs forward, 2 for the gradient of the input and, where it is trained, 2 for its own
gradient. Attention multiplies queries with keys and scores with values, for each pair of tokens of a row that attend to
each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from trainer.learning import memory
from trainer.learning.clock import now
from trainer.router_replay import EXPERTS

SIDES = {"cuda": 4096}
SIDE = 1024
"""Side of the multiplied matrices: large enough to be fast, small enough to take a moment."""
FIRST_SECONDS = 0.25
"""Time of a process's first measurement; at least two products."""
SHARE = 0.01
"""Share of each step's time that goes into measuring again."""
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
    lengths: tuple[int, ...] = field(default=(), compare=False)
    """Lengths of causal rows, of which a sliding window sees fewer pairs; empty where every layer sees all."""

    @classmethod
    def of_rows(cls, lengths: Iterable[int], predicted: int) -> Tokens:
        """Work of causal rows that are computed separately."""
        counts = list(lengths)
        return cls(sum(counts), predicted, sum(n * (n + 1) // 2 for n in counts), tuple(counts))

    @classmethod
    def of_prefixes(cls, positions: Iterable[Tensor], predicted: int) -> Tokens:
        """Work of prefixes that are computed once each, from the position of each one's last token."""
        each = list(positions)
        return cls(sum(map(len, each)), predicted, sum(int(one.sum()) + len(one) for one in each))

    def __add__(self, other: Tokens) -> Tokens:
        together = self.lengths + other.lengths
        return Tokens(self.tokens + other.tokens, self.predicted + other.predicted, self.pairs + other.pairs, together)

    def pairs_within(self, window: int) -> int:
        """Pairs at most `window` tokens apart, each token with itself included."""
        beyond = sum((n - window) * (n - window + 1) // 2 for n in self.lengths if n > window)
        return self.pairs - beyond


@dataclass(frozen=True, slots=True)
class Shape:
    """Forward multiplications per token, prediction and pair; `learning_*` count only those by trained weights."""

    body: float
    head: float
    pair: float
    learning_body: float
    learning_head: float
    windowed: float = 0.0
    """Like `pair`, of the layers with a sliding window."""
    window: int = 0

    def flops(self, work: Tokens, *, reference: bool = False) -> float:
        """FLOPs of a step over these tokens; `reference` adds a frozen reference that scores them too."""
        attention = self.pair * work.pairs + self.windowed * work.pairs_within(self.window)
        forward = self.body * work.tokens + self.head * work.predicted + attention
        gradients = self.learning_body * work.tokens + self.learning_head * work.predicted + attention
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
    whole, windowed, window = _attention_layers(config)
    pair = float(heads * (keys + values))
    return Shape(body, of_head, whole * pair, learning, learning_head, windowed * pair, window)


def _attention_layers(config: PretrainedConfig) -> tuple[int, int, int]:
    """Layers that see all earlier tokens, layers with a sliding window, and its length. Linear attention has no pairs."""
    layers, window = int(config.num_hidden_layers), int(getattr(config, "sliding_window", None) or 0)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        slides = window > 0 and getattr(config, "use_sliding_window", True)
        return (0, layers, window) if slides else (layers, 0, 0)
    return kinds.count("full_attention"), kinds.count("sliding_attention") if window else 0, window


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
        peak = fastest_product(device, self.number_format, seen=speed / ranks, seconds=SHARE * seconds)
        return {
            "speed/model_flops": speed,
            "speed/mfu": speed / (ranks * peak),
            "memory/trainer": float(memory.take_peak(device)),
        }


_best: dict[tuple[torch.device, torch.dtype, int], float] = {}
"""Peaks by device, format and threads."""


def fastest_product(
    device: torch.device, number_format: torch.dtype, *, seen: float = 0.0, seconds: float = 0.0
) -> float:
    """Peak FLOPs per second: the best of everything that this process measured with as many threads as it has now.

    `seen`: what a step reached, which the device therefore can do. `seconds`: time for measuring again.
    """
    key = device, number_format, torch.get_num_threads()
    if key not in _best:
        _best[key], seconds = _measured(device, number_format, FIRST_SECONDS), 0.0
    elif seconds > 0:
        _best[key] = max(_best[key], _measured(device, number_format, min(seconds, FIRST_SECONDS)))
    _best[key] = max(_best[key], seen)
    return _best[key]


def _measured(device: torch.device, number_format: torch.dtype, seconds: float) -> float:
    """The fastest of as many square matrix products as fit into `seconds`; the first one only warms up."""
    side = SIDES.get(device.type, SIDE)
    ramp = torch.arange(side * side, device=device, dtype=torch.float32)
    factor = ramp.sin().view(side, side).to(number_format)
    best, started = float("inf"), now(device)
    torch.mm(factor, factor)
    while best == float("inf") or now(device) - started < seconds:
        began = now(device)
        torch.mm(factor, factor)
        best = min(best, now(device) - began)
    return 2.0 * side**3 / best
