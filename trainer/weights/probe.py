"""A policy's outputs for one fixed text, stored beside its weights: an engine that loaded them must reproduce these.

A server's acceptance of weights proves nothing. Some servers are known to answer 200 and compute garbage after a
reload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.errors import BlobMissing
from trainer.weights.versions import Versions

FILE_NAME = "probe.json"
PROMPTS = 8
STEP = 6
"""Tokens by which each prompt is longer than the previous one; all share a prefix."""
LIKELIEST = 32
BOUNDS: dict[str, float] = {"float32": 0.1, "bfloat16": 0.2}
"""Bound on the mean difference of log-probabilities in nats, by the format of the published weights, in which engines
may compute. Observed on pseudo-random text, the harder case: bfloat16 against float32 0.004 on a toy and 0.055 to 0.097
on a 135 M model; 2.4 for wrongly packed experts, 0.26 for weights a few optimiser steps older.
"""
NATURAL = (
    "The function returns the wrong total when the list is empty. Read the file, find the loop that adds the prices, and "
    "fix it.\ndef total(prices):\n    result = 0\n    for price in prices:\n        result += price\n    return result\n"
)
"""Text that a policy has seen the like of: its log-probabilities there are smooth, so that formats differ little."""
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
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Format of the published weights."""

    @property
    def bound(self) -> float:
        """Largest gap of an engine that computes these weights, in nats."""
        return BOUNDS[self.dtype]

    def gap(self, answers: Sequence[tuple[int, float]]) -> float:
        """Mean over the rows; `answers` holds each row's likeliest token and its log-probability."""
        return sum(r.gap(*answer) for r, answer in zip(self.rows, answers, strict=True)) / len(self.rows)


class Encodes(Protocol):
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


def natural_text(tokenizer: Encodes) -> list[int] | None:
    """Tokens of `NATURAL`; None for a tokenizer that needs too few of them for the prompts."""
    found = tokenizer.encode(NATURAL, add_special_tokens=False)[: PROMPTS * STEP]
    return found if len(found) == PROMPTS * STEP else None


def text(vocabulary: int) -> list[int]:
    """The fixed pseudo-random text, without a tokenizer. Draws no random number, so a probe does not change a run."""
    return [(7919 * (n + 3) ** 2 + 104729 * n) % vocabulary for n in range(PROMPTS * STEP)]


def ends() -> range:
    """End positions of the prompts in the text, exclusive."""
    return range(STEP, PROMPTS * STEP + 1, STEP)


def likeliest(logits_PV: torch.Tensor) -> tuple[list[list[int]], list[list[float]]]:
    """Tokens and log-probabilities after each prompt, likeliest first, from the logits of its last token."""
    found = logits_PV.float().log_softmax(-1).topk(min(LIKELIEST, logits_PV.shape[-1]))
    return found.indices.tolist(), found.values.tolist()


def made(
    tokens: Sequence[int],
    ids: Sequence[list[int]],
    logprobs: Sequence[list[float]],
    dtype: Literal["float32", "bfloat16"] = "bfloat16",
) -> Probe:
    """Probe of the text, with the likeliest tokens after each prompt."""
    return Probe(
        dtype=dtype,
        rows=[
            Row(prompt_ids=list(tokens[:end]), ids=after, logprobs=chances)
            for end, after, chances in zip(ends(), ids, logprobs, strict=True)
        ],
    )


def measure(
    forward: Callable[[torch.Tensor], Any],
    vocabulary: int,
    device: torch.device | str = "cpu",
    *,
    tokens: Sequence[int] | None = None,
    dtype: Literal["float32", "bfloat16"] = "bfloat16",
) -> Probe:
    """Measure a probe with the library's forward pass, of `tokens` or else of the pseudo-random text."""
    tokens = list(tokens or text(vocabulary))
    with torch.no_grad():
        logits_TV = forward(torch.tensor([tokens], device=device)).logits[0]
    return made(tokens, *likeliest(logits_TV[STEP - 1 :: STEP]), dtype)


def measure_model(
    model: torch.nn.Module,
    *,
    tokenizer: Encodes | None = None,
    dtype: Literal["float32", "bfloat16"] = "bfloat16",
) -> Probe:
    """Measure a probe of the trainer's model, on natural text where its tokenizer is known."""
    module: Any = model
    trains = module.training
    module.eval()
    try:
        return measure(
            lambda ids: module(input_ids=ids, use_cache=False),
            module.config.vocab_size,
            next(module.parameters()).device,
            tokens=natural_text(tokenizer) if tokenizer is not None else None,
            dtype=dtype,
        )
    finally:
        module.train(trains)


def published_probe(store: Versions, version: int) -> Probe | None:
    """Probe that a version's publisher stored; None where there is none that can be read."""
    try:
        return Probe.model_validate_json(store.get(version, FILE_NAME))
    except (BlobMissing, ValidationError):
        return None
