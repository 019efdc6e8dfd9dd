"""What a policy says of one fixed text, kept beside its weights: an engine that loaded them must say the same.

That a server took weights proves nothing. Some are known to answer 200 and compute garbage after a reload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.weights.errors import BlobMissing
from trainer.weights.versions import Versions

FILE_NAME = "probe.json"
PROMPTS = 8
STEP = 6
"""Tokens by which each prompt is longer than the one before; all begin alike."""
LIKELIEST = 32
BOUND = 0.1
"""Mean difference of log-probabilities, in nats, that number formats do not explain. bfloat16 against float32 was seen to make
0.004 on average, packing experts wrongly 2.4, and weights of a few optimiser steps before 0.26."""
ELSEWHERE = 1.0
"""Counted at least for a token that is not even among the likeliest."""


class Row(BaseModel):
    """What follows one prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_ids: list[int] = Field(min_length=1)
    ids: list[int] = Field(min_length=1)
    """The likeliest tokens, likeliest first."""
    logprobs: list[float]

    def gap(self, token: int, logprob: float) -> float:
        """How far an engine is off that finds `token` the likeliest, with this log-probability."""
        for known, wanted in zip(self.ids, self.logprobs, strict=True):
            if known == token:
                return abs(logprob - wanted)
        return max(ELSEWHERE, logprob - self.logprobs[-1])


class Probe(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    rows: list[Row] = Field(min_length=1)

    def gap(self, answers: Sequence[tuple[int, float]]) -> float:
        """Mean over the rows; `answers` are the likeliest token of each and its log-probability."""
        return sum(r.gap(*answer) for r, answer in zip(self.rows, answers, strict=True)) / len(self.rows)


def text(vocabulary: int) -> list[int]:
    """The fixed text. Takes no random number: a run with a probe is the run without."""
    return [(7919 * (n + 3) ** 2 + 104729 * n) % vocabulary for n in range(PROMPTS * STEP)]


def ends() -> range:
    """Where the prompts end in the text: one beyond their last tokens."""
    return range(STEP, PROMPTS * STEP + 1, STEP)


def likeliest(logits_PV: torch.Tensor) -> tuple[list[list[int]], list[list[float]]]:
    """Tokens and log-probabilities after each prompt, likeliest first, of the logits of its last token."""
    found = logits_PV.float().log_softmax(-1).topk(min(LIKELIEST, logits_PV.shape[-1]))
    return found.indices.tolist(), found.values.tolist()


def made(tokens: Sequence[int], ids: Sequence[list[int]], logprobs: Sequence[list[float]]) -> Probe:
    """Of the text, and what was found likeliest after each prompt."""
    return Probe(
        rows=[
            Row(prompt_ids=list(tokens[:end]), ids=after, logprobs=chances)
            for end, after, chances in zip(ends(), ids, logprobs, strict=True)
        ]
    )


def measure(forward: Callable[[torch.Tensor], Any], vocabulary: int, device: torch.device | str = "cpu") -> Probe:
    """By the library's forward pass."""
    tokens = text(vocabulary)
    with torch.no_grad():
        logits_TV = forward(torch.tensor([tokens], device=device)).logits[0]
    return made(tokens, *likeliest(logits_TV[STEP - 1 :: STEP]))


def measure_model(model: torch.nn.Module) -> Probe:
    """Of a policy as the trainer has it."""
    module: Any = model
    trains = module.training
    module.eval()
    try:
        return measure(
            lambda ids: module(input_ids=ids, use_cache=False),
            module.config.vocab_size,
            next(module.parameters()).device,
        )
    finally:
        module.train(trains)


def published_probe(store: Versions, version: int) -> Probe | None:
    """What the publisher of a version kept beside it; None where it kept nothing that can be read."""
    try:
        return Probe.model_validate_json(store.get(version, FILE_NAME))
    except (BlobMissing, ValidationError):
        return None
