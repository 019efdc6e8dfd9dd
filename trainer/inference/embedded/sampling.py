"""Sampling with exact log-probabilities and one random stream per request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from trainer.inference.embedded.kernels.loops import Loops


class RandomStream:
    """Uniform numbers of one request: the n-th token always gets the n-th number, whatever else is in its batch."""

    BLOCK = 64

    def __init__(self, seed: int | None) -> None:
        sequence = np.random.SeedSequence(None if seed is None else seed % (1 << 64))
        self._generator = np.random.Generator(np.random.Philox(sequence))
        self._numbers: list[float] = []

    def __getitem__(self, index: int) -> float:
        while index >= len(self._numbers):
            self._numbers += self._generator.random(self.BLOCK).tolist()
        return self._numbers[index]


@dataclass(frozen=True, slots=True)
class SamplingMask:
    """Restricts sampling to the likeliest tokens: at most `top_k` (0: no limit), and the fewest that reach `top_p`."""

    top_k: int
    top_p: float

    def open_V(self, logprobs_V: torch.Tensor) -> torch.Tensor:
        """Ids of allowed tokens, ascending; at least one."""
        most = min(self.top_k or len(logprobs_V), len(logprobs_V))
        likely, ids = logprobs_V.sort(descending=True, stable=True)
        before = likely.exp().cumsum(0, dtype=torch.float64) - likely.exp()
        inside = before < self.top_p
        inside[0] = True
        return ids[:most][inside[:most]].sort().values


@torch.inference_mode()
def narrow(logits_RV: torch.Tensor, temperatures: list[float], rules: list[SamplingMask | None]) -> list[list[int]]:
    """Set the logits of masked tokens to -inf; return each row's allowed ids, empty where all are allowed."""
    allowed_ids: list[list[int]] = [[] for _ in rules]
    for row, (rule, temperature) in enumerate(zip(rules, temperatures, strict=True)):
        if rule is None:
            continue
        kept = rule.open_V(torch.log_softmax(logits_RV[row] / temperature, -1))
        closed = torch.ones(logits_RV.shape[1], dtype=torch.bool, device=logits_RV.device)
        closed[kept] = False
        logits_RV[row].masked_fill_(closed, float("-inf"))
        allowed_ids[row] = kept.tolist()
    return allowed_ids


@torch.inference_mode()
def sample(
    logits_RV: torch.Tensor, temperatures: list[float], uniforms: list[float], loops: Loops | None = None
) -> tuple[list[int], list[float]]:
    """Sample one token per row by inverse CDF; return it with its log-probability under the tempered distribution.

    Temperature 0 takes the most likely token and reports its log-probability at temperature 1. A token of probability
    zero is never drawn.
    """
    if loops is not None:
        tokens_R, logprobs_R = np.empty(len(uniforms), np.int64), np.empty(len(uniforms))
        wanted = np.array(temperatures, np.float32), np.array(uniforms)
        loops.draw(logits_RV.numpy(), *wanted, tokens_R, logprobs_R)
        return tokens_R.tolist(), logprobs_R.tolist()
    device = logits_RV.device
    temperature = torch.tensor(temperatures, device=device)[:, None]
    greedy = temperature == 0
    logprobs_RV = torch.log_softmax(logits_RV / torch.where(greedy, 1.0, temperature), -1)
    cumulative = logprobs_RV.exp().cumsum(-1, dtype=torch.float64)
    point = torch.tensor(uniforms, dtype=torch.float64, device=device)[:, None] * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, point, right=True).clamp_(max=logits_RV.shape[1] - 1)
    if 0.0 in temperatures:
        token = torch.where(greedy, logits_RV.argmax(-1, keepdim=True), token)
    return token[:, 0].tolist(), logprobs_RV.gather(-1, token)[:, 0].tolist()
