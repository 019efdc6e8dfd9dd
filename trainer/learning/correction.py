"""Importance correction between the sampler that wrote a token and the trainer that learns from it.

The ratio of a token is r = exp(log p_trainer - log p_sampler), both at the sampling temperature. A correction turns
ratios into weights of the policy-gradient terms; weights carry no gradient. Shapes: all tensors are [N], one entry
a policy token of the whole optimiser step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainer.config import CorrectionConfig

MAX_LOG_RATIO = 20.0
"""Ratios beyond exp(±20) are numerical accidents; clamped so that statistics stay finite."""


class Correction(Protocol):
    def weights(self, ratio_N: Tensor) -> Tensor:
        """Weight [N] of each token's policy-gradient term."""
        ...


@dataclass(frozen=True, slots=True)
class NoCorrection:
    """Every token weighs 1, however far the sampler has drifted."""

    def weights(self, ratio_N: Tensor) -> Tensor:
        return torch.ones_like(ratio_N)


@dataclass(frozen=True, slots=True)
class Truncated:
    """min(r, high): unbiased below the bound, bounded variance above it."""

    high: float

    def weights(self, ratio_N: Tensor) -> Tensor:
        return ratio_N.clamp(max=self.high)


@dataclass(frozen=True, slots=True)
class Masked:
    """r inside [low, high], 0 outside: tokens on which the two sides disagree teach nothing."""

    low: float
    high: float

    def weights(self, ratio_N: Tensor) -> Tensor:
        inside = (ratio_N >= self.low) & (ratio_N <= self.high)
        return torch.where(inside, ratio_N, torch.zeros_like(ratio_N))


def build_correction(config: CorrectionConfig) -> Correction:
    if config.kind == "none":
        return NoCorrection()
    if config.kind == "truncated":
        return Truncated(config.clip_high)
    if config.clip_low >= config.clip_high:
        raise ValueError(f"clip_low={config.clip_low} must be below clip_high={config.clip_high}")
    return Masked(config.clip_low, config.clip_high)


def token_ratio(trainer_logprobs_N: Tensor, sampler_logprobs_N: Tensor) -> Tensor:
    """r = exp(log p_trainer - log p_sampler), without gradient."""
    log_ratio = trainer_logprobs_N.detach() - sampler_logprobs_N
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


@dataclass(frozen=True, slots=True)
class CorrectionStats:
    ess: float
    """Effective sample size as a share: (Σw)² / (N·Σw²) of the weights; 1 on-policy, below 0.3 alarming."""
    chi2: float
    """mean(r²) - 1 of the raw ratios: an early sign of heavy tails."""
    masked_share: float
    """Share of tokens whose weight is 0."""
    clipped_share: float
    """Share of tokens whose weight is smaller than their ratio but not 0."""
    ratio_mean: float
    ratio_max: float


def correction_stats(ratio_N: Tensor, weight_N: Tensor) -> CorrectionStats:
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
        clipped_share=float(((weight < ratio) & (weight != 0)).double().mean()),
        ratio_mean=float(ratio.mean()),
        ratio_max=float(ratio.max()),
    )
