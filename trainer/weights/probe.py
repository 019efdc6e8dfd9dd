"""A policy's outputs for one fixed text, stored beside its weights: an engine that loaded them must reproduce these.

A server's acceptance of weights proves nothing. Some servers are known to answer 200 and compute garbage after a
reload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
Format = Literal["float32", "bfloat16"]
BOUNDS: dict[Format, float] = {"float32": 0.1, "bfloat16": 0.2}
"""Bound on the mean difference of log-probabilities in nats, by the format of the published weights, in which engines
may compute. Observed on pseudo-random text, the harder case: bfloat16 against float32 0.004 on a toy and 0.055 to 0.097
on a 135 M model; 2.4 for wrongly packed experts, 0.26 for weights a few optimiser steps older.
"""
NATURAL = (
    "The function returns the wrong total when the list is empty. Read the file, find the loop that adds the prices, and "
    "fix it.\ndef total(prices):\n    result = 0\n    for price in prices:\n        result += price\n    return result\n"
    "The tests pass now, and the total of an empty list is zero, as the instruction asks.\n"
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
    dtype: Format = "bfloat16"
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


@dataclass(frozen=True, slots=True)
class ProbeText:
    """What every publisher asks its policy: on one process, on ranks and of a folder."""

    tokens: list[int]
    dtype: Format
    """Format of the published weights, which bounds the gap of engines."""

    @classmethod
    def of(cls, model: Any, *, tokenizer: Encodes | None, dtype: Format) -> ProbeText:
        """`NATURAL` in the tokens of the policy; pseudo-random tokens for a policy without a tokenizer, or with one that
        needs too few of them for the prompts. Draws no random number, so a probe does not change a run."""
        size = PROMPTS * STEP
        tokens = tokenizer.encode(NATURAL, add_special_tokens=False)[:size] if tokenizer is not None else []
        if len(tokens) < size:
            tokens = [(7919 * (n + 3) ** 2 + 104729 * n) % model.config.vocab_size for n in range(size)]
        return cls(tokens, dtype)

    def probe(self, ids: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]]) -> Probe:
        """The likeliest tokens after each prompt, and their log-probabilities."""
        return Probe(
            dtype=self.dtype,
            rows=[
                Row(prompt_ids=self.tokens[:end], ids=list(after), logprobs=list(chances))
                for end, after, chances in zip(ends(), ids, logprobs, strict=True)
            ],
        )


def ends() -> range:
    """End positions of the prompts in the text, exclusive."""
    return range(STEP, PROMPTS * STEP + 1, STEP)


def likeliest(logits_PV: torch.Tensor) -> tuple[list[list[int]], list[list[float]]]:
    """Tokens and log-probabilities after each prompt, likeliest first, from the logits of its last token."""
    found = logits_PV.float().log_softmax(-1).topk(min(LIKELIEST, logits_PV.shape[-1]))
    return found.indices.tolist(), found.values.tolist()


def format_of(state: Mapping[str, torch.Tensor]) -> Format:
    """Format of published tensors: float32 only where all floating ones are."""
    return "float32" if {t.dtype for t in state.values() if t.is_floating_point()} <= {torch.float32} else "bfloat16"


def measure_model(model: torch.nn.Module, *, tokenizer: Encodes | None, dtype: Format) -> Probe:
    """Measure a probe with the library's forward pass; `dtype` is the format of the published weights."""
    module: Any = model
    asked = ProbeText.of(module, tokenizer=tokenizer, dtype=dtype)
    trains = module.training
    module.eval()
    try:
        with torch.no_grad():
            tokens_1T = torch.tensor([asked.tokens], device=next(module.parameters()).device)
            logits_TV = module(input_ids=tokens_1T, use_cache=False).logits[0]
    finally:
        module.train(trains)
    return asked.probe(*likeliest(logits_TV[STEP - 1 :: STEP]))


def published_probe(store: Versions, version: int) -> Probe | None:
    """Probe that a version's publisher stored; None where there is none that can be read."""
    try:
        return Probe.model_validate_json(store.get(version, FILE_NAME))
    except (BlobMissing, ValidationError):
        return None
