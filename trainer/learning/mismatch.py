"""Train–inference mismatch: the trainer's log-probabilities compared with the sampler's, token by token.

With d = log p_trainer - log p_sampler at a sampled token, k1 = -d is an unbiased estimate of KL(sampler ‖ trainer), and
k3 = exp(d) - 1 - d is an unbiased one that is never negative. Both are 0 where the two agree.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainer.learning.importance_sampling import MAX_LOG_RATIO


def mismatch(log_ratio_N: Tensor) -> dict[str, float]:
    """Run metrics (`metrics.py`) of d [N] over a step's policy tokens; empty without any."""
    if not log_ratio_N.numel():
        return {}
    gap_N = log_ratio_N.double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    k3_N = torch.expm1(gap_N) - gap_N
    return {
        "mismatch/k1_mean": float(-gap_N.mean()),
        "mismatch/k3_mean": float(k3_N.mean()),
        "mismatch/k3_p99": p99(k3_N),
        "mismatch/k3_max": float(k3_N.max()),
        "mismatch/abs_mean": float(gap_N.abs().mean()),
        "mismatch/abs_p99": p99(gap_N.abs()),
        "mismatch/abs_max": float(gap_N.abs().max()),
    }


def p99(values_N: Tensor) -> float:
    """The smallest value that 99 % of the values do not exceed."""
    return float(values_N.kthvalue(math.ceil(0.99 * values_N.numel())).values)
