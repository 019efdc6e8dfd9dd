"""Importance correction between the sampler that wrote a token and the trainer that learns from it.

The ratio of a token is r = exp(log p_trainer - log p_sampler), both at the sampling temperature. A correction turns
ratios into weights of the policy-gradient terms w·A·log π. Weights carry no gradient; a clipped surrogate such as
min(r·A, clip(r)·A) has the gradient r·A·∇log π where it is not clipped and 0 where it is, so that it is a weight too.

| kind | weight | from |
|---|---|---|
| none | 1 | |
| truncated | min(r, high) | truncated importance sampling; CISPO |
| masked | r inside [low, high], else 0 | IcePop |
| dppo_tv | r, 0 where the probability moved by more than a bound the way that A pushes | DPPO, binary total variation |
| clipped | r, 0 where r left [1-ε, 1+ε] the way that A pushes | PPO, GRPO |
| sequence | the same with the geometric mean of a segment's ratios | GSPO |

Shapes: all tensors are [N], one entry a policy token of a micro-batch of whole rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainer.algorithms import ALGORITHMS
from trainer.config import CorrectionConfig, ObjectiveConfig

MAX_LOG_RATIO = 20.0
"""Clamp on log-ratios: ratios beyond exp(±20) are numerical accidents, and statistics must stay finite."""

CLIPPED_EPSILON = (0.2, 0.2)
"""PPO's and GRPO's published clip range below and above 1."""
SEQUENCE_EPSILON = (3e-4, 4e-4)
"""GSPO's published clip range; a sequence's ratio moves far less than a token's."""


@dataclass(frozen=True, slots=True)
class TokenEvidence:
    """Inputs of a correction. All [N], without gradient."""

    trainer_logprobs_N: Tensor
    sampler_logprobs_N: Tensor
    advantages_N: Tensor
    rows_N: Tensor
    """Row (segment) of the micro-batch that each token belongs to, int64."""

    @property
    def ratio_N(self) -> Tensor:
        return token_ratio(self.trainer_logprobs_N, self.sampler_logprobs_N)


class Correction(Protocol):
    def weights(self, tokens: TokenEvidence) -> Tensor:
        """Weight [N] of each token's policy-gradient term."""
        ...

    def clipped(self, tokens: TokenEvidence) -> Tensor:
        """Whether a bound reduced the token's weight without making it 0; bool, [N]."""
        ...


class _OrNothing:
    """A correction whose bounds set weights to 0 and never merely reduce them."""

    def clipped(self, tokens: TokenEvidence) -> Tensor:
        return torch.zeros_like(tokens.trainer_logprobs_N, dtype=torch.bool)


@dataclass(frozen=True, slots=True)
class NoCorrection(_OrNothing):
    """Weight 1 for every token, however far the sampler has drifted."""

    def weights(self, tokens: TokenEvidence) -> Tensor:
        return torch.ones_like(tokens.trainer_logprobs_N)


@dataclass(frozen=True, slots=True)
class Truncated:
    """min(r, high): unbiased below the bound, bounded variance above it."""

    high: float

    def weights(self, tokens: TokenEvidence) -> Tensor:
        return tokens.ratio_N.clamp(max=self.high)

    def clipped(self, tokens: TokenEvidence) -> Tensor:
        return tokens.ratio_N > self.high


@dataclass(frozen=True, slots=True)
class Masked(_OrNothing):
    """r inside [low, high], 0 outside: tokens with a large mismatch teach nothing."""

    low: float
    high: float

    def weights(self, tokens: TokenEvidence) -> Tensor:
        ratio_N = tokens.ratio_N
        inside = (ratio_N >= self.low) & (ratio_N <= self.high)
        return torch.where(inside, ratio_N, torch.zeros_like(ratio_N))


@dataclass(frozen=True, slots=True)
class TotalVariation(_OrNothing):
    """r while |p_trainer - p_sampler| <= bound, or while the update reduces the difference.

    The bound is the total variation of the binary choice "this token or another". A ratio does not show how much
    probability moved, and clips rare tokens that hardly moved.
    """

    bound: float

    def weights(self, tokens: TokenEvidence) -> Tensor:
        moved_N = tokens.trainer_logprobs_N.exp() - tokens.sampler_logprobs_N.exp()
        return _without_further(tokens.ratio_N, moved_N, tokens.advantages_N, -self.bound, self.bound)


@dataclass(frozen=True, slots=True)
class Clipped(_OrNothing):
    """The gradient of min(r·A, clip(r, 1-ε, 1+ε)·A)."""

    low: float
    high: float

    def weights(self, tokens: TokenEvidence) -> Tensor:
        ratio_N = tokens.ratio_N
        return _without_further(ratio_N, ratio_N - 1.0, tokens.advantages_N, -self.low, self.high)


@dataclass(frozen=True, slots=True)
class SequenceClipped(_OrNothing):
    """The same with s = exp(mean of a segment's log-ratios) in place of each token's ratio."""

    low: float
    high: float

    def weights(self, tokens: TokenEvidence) -> Tensor:
        log_ratio_N = _log_ratio(tokens.trainer_logprobs_N, tokens.sampler_logprobs_N)
        rows = int(tokens.rows_N.max()) + 1 if tokens.rows_N.numel() else 0
        sums_B = log_ratio_N.new_zeros(rows).index_add(0, tokens.rows_N, log_ratio_N)
        counts_B = torch.bincount(tokens.rows_N, minlength=rows).clamp(min=1)
        sequence_N = (sums_B / counts_B).exp()[tokens.rows_N]
        return _without_further(sequence_N, sequence_N - 1.0, tokens.advantages_N, -self.low, self.high)


def _without_further(weight_N: Tensor, moved_N: Tensor, advantages_N: Tensor, low: float, high: float) -> Tensor:
    """`weight_N`, set to 0 where the policy has moved beyond [low, high] and the advantage pushes it further."""
    further = ((advantages_N > 0) & (moved_N > high)) | ((advantages_N < 0) & (moved_N < low))
    return torch.where(further, torch.zeros_like(weight_N), weight_N)


def correction_of(objective: ObjectiveConfig) -> Correction:
    """The active importance correction: the configured one, or the algorithm's own."""
    return build_correction(objective.correction, own=ALGORITHMS[objective.algorithm].correction)


def build_correction(config: CorrectionConfig, *, own: str = "truncated") -> Correction:
    """The configured correction; `auto` selects the algorithm's, `own`."""
    kind = own if config.kind == "auto" else config.kind
    match kind:
        case "none":
            return NoCorrection()
        case "truncated":
            return Truncated(config.clip_high)
        case "masked":
            return Masked(config.clip_low, config.clip_high)
        case "dppo_tv":
            return TotalVariation(config.tv_bound)
        case "clipped":
            return Clipped(*_epsilons(config, CLIPPED_EPSILON))
        case "sequence":
            return SequenceClipped(*_epsilons(config, SEQUENCE_EPSILON))
    raise ValueError(f"unknown correction {kind!r}")


def _epsilons(config: CorrectionConfig, published: tuple[float, float]) -> tuple[float, float]:
    low, high = config.epsilon_low, config.epsilon_high
    return published[0] if low is None else low, published[1] if high is None else high


def _log_ratio(trainer_logprobs_N: Tensor, sampler_logprobs_N: Tensor) -> Tensor:
    return (trainer_logprobs_N.detach() - sampler_logprobs_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def token_ratio(trainer_logprobs_N: Tensor, sampler_logprobs_N: Tensor) -> Tensor:
    """r = exp(log p_trainer - log p_sampler), without gradient."""
    return _log_ratio(trainer_logprobs_N, sampler_logprobs_N).exp()


@dataclass(frozen=True, slots=True)
class CorrectionStats:
    ess: float
    """Effective sample size as a share: (Σw)² / (N·Σw²) of the weights; 1 on-policy, below 0.3 alarming."""
    chi2: float
    """mean(r²) - 1 of the raw ratios; an early sign of heavy tails."""
    masked_share: float
    """Share of tokens with weight 0."""
    clipped_share: float
    """Share of tokens whose weight a bound reduced, but not to 0."""
    ratio_mean: float
    ratio_max: float


def correction_stats(ratio_N: Tensor, weight_N: Tensor, clipped_N: Tensor) -> CorrectionStats:
    """Statistics over all policy tokens of one optimiser step. An empty step counts as on-policy."""
    n = ratio_N.numel()
    if n == 0:
        return CorrectionStats(ess=1.0, chi2=0.0, masked_share=0.0, clipped_share=0.0, ratio_mean=1.0, ratio_max=1.0)
    ratio, weight = ratio_N.double(), weight_N.double()
    square = float((weight * weight).sum())
    return CorrectionStats(
        ess=float(weight.sum()) ** 2 / (n * square) if square > 0 else 0.0,
        chi2=float((ratio * ratio).mean()) - 1.0,
        masked_share=float((weight == 0).double().mean()),
        clipped_share=float(clipped_N.double().mean()),
        ratio_mean=float(ratio.mean()),
        ratio_max=float(ratio.max()),
    )
