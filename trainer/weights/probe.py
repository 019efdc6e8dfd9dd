"""A policy's outputs for one fixed text, stored beside its weights: an engine that loaded them must reproduce these.

A server's acceptance of weights proves nothing. Some servers are known to answer 200 and compute garbage after a
reload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.errors import BlobMissing
from trainer.weights.versions import Versions

FILE_NAME = "probe.json"
PROMPTS = 8
STEP = 6
"""Tokens by which each prompt is longer than the previous one; all share a prefix."""
LIKELIEST = 32
BOUND = 0.1
"""Bound on the mean difference of log-probabilities, in nats, beyond number formats. Observed: 0.004 on average for
bfloat16
against float32, 2.4 for wrongly packed experts, 0.26 for weights a few optimiser steps older.
"""
ELSEWHERE = 1.0
"""Minimum difference counted for a token that is not among the likeliest."""


class Row(BaseModel):
    """Outputs after one prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_ids: list[int] = Field(min_length=1)
    ids: list[int] = Field(min_length=1)
    """The likeliest tokens, in descending order."""
    logprobs: list[float]

    def gap(self, token: int, logprob: float) -> float:
        """Difference for an engine whose likeliest token is `token` with this log-probability."""
        for known, wanted in zip(self.ids, self.logprobs, strict=True):
            if known == token:
                return abs(logprob - wanted)
        return max(ELSEWHERE, logprob - self.logprobs[-1])


class Probe(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    rows: list[Row] = Field(min_length=1)

    def gap(self, answers: Sequence[tuple[int, float]]) -> float:
        """Mean over the rows; `answers` holds each row's likeliest token and its log-probability."""
        return sum(r.gap(*answer) for r, answer in zip(self.rows, answers, strict=True)) / len(self.rows)


def text(vocabulary: int) -> list[int]:
    """The fixed text. Draws no random number, so a probe does not change a run."""
    return [(7919 * (n + 3) ** 2 + 104729 * n) % vocabulary for n in range(PROMPTS * STEP)]


def ends() -> range:
    """End positions of the prompts in the text, exclusive."""
    return range(STEP, PROMPTS * STEP + 1, STEP)


def likeliest(logits_PV: torch.Tensor) -> tuple[list[list[int]], list[list[float]]]:
    """Tokens and log-probabilities after each prompt, likeliest first, from the logits of its last token."""
    found = logits_PV.float().log_softmax(-1).topk(min(LIKELIEST, logits_PV.shape[-1]))
    return found.indices.tolist(), found.values.tolist()


def made(tokens: Sequence[int], ids: Sequence[list[int]], logprobs: Sequence[list[float]]) -> Probe:
    """Probe of the text, with the likeliest tokens after each prompt."""
    return Probe(
        rows=[
            Row(prompt_ids=list(tokens[:end]), ids=after, logprobs=chances)
            for end, after, chances in zip(ends(), ids, logprobs, strict=True)
        ]
    )


def measure(forward: Callable[[torch.Tensor], Any], vocabulary: int, device: torch.device | str = "cpu") -> Probe:
    """Measure a probe with the library's forward pass."""
    tokens = text(vocabulary)
    with torch.no_grad():
        logits_TV = forward(torch.tensor([tokens], device=device)).logits[0]
    return made(tokens, *likeliest(logits_TV[STEP - 1 :: STEP]))


def measure_model(model: torch.nn.Module) -> Probe:
    """Measure a probe of the trainer's model."""
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
    """Probe that a version's publisher stored; None where there is none that can be read."""
    try:
        return Probe.model_validate_json(store.get(version, FILE_NAME))
    except (BlobMissing, ValidationError):
        return None
