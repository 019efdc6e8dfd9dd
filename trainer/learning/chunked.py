"""Log-probabilities of a large vocabulary without its logits: some rows of them at a time, forward and backward.

The projection to the vocabulary is computed again in the backward pass, so that what lives is hidden states and three
numbers a token. Row by row the formulas are those of the plain path:

    log p(y) = z_y − log Σ exp z,   ∂ log p(y) / ∂z = 1[y] − p,   H = log Σ exp z − Σ p·z,   z = W·h / temperature

The gradient of W is summed in float32 whatever the weights are.

Shape suffixes: N policy tokens, D hidden width, V vocabulary, C tokens of a chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

IN_CACHE = 1 << 19
"""Logits that are worked on at a time: 2 MiB of float32."""


def chunked_scores(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    *,
    temperature: float,
    logits_at_once: int,
    open_M: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets [N], with gradient, and entropies [N], without.

    At most `logits_at_once` logits exist at a time, and at least one row of them; with 0 the probabilities of all are
    kept for the backward pass, which is quicker and can run only once. `open_M`: see `MicroBatch`.
    """
    if not logits_at_once:
        kept: tuple[Tensor, Tensor] = _Kept.apply(hidden_ND, weight_VD, targets_N, temperature, open_M)
        return kept
    rows = max(1, logits_at_once // len(weight_VD))
    scores: tuple[Tensor, Tensor] = _Chunked.apply(hidden_ND, weight_VD, targets_N, temperature, rows, open_M)
    return scores


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        temperature: float,
        rows: int,
        open_M: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        logprobs_N = hidden_ND.new_empty(len(hidden_ND), dtype=torch.float32)
        entropy_N = torch.empty_like(logprobs_N)
        for start in range(0, len(hidden_ND), rows):
            part = slice(start, start + rows)
            logps_CV = _logps(hidden_ND[part], weight_VD, temperature, start, open_M)
            logprobs_N[part] = logps_CV.gather(1, targets_N[part, None])[:, 0]
            terms_CV = logps_CV.exp().mul_(logps_CV)
            entropy_N[part] = -(terms_CV if open_M is None else terms_CV.nan_to_num_(0.0)).sum(-1)
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N, *(open_M or ()))
        ctx.temperature, ctx.rows = temperature, rows
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        hidden_ND, weight_VD, targets_N, *pairs = ctx.saved_tensors
        open_M = (pairs[0], pairs[1]) if pairs else None
        hidden_grad_ND = torch.empty_like(hidden_ND)
        weight_grad_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        for start in range(0, len(hidden_ND), ctx.rows):
            part = slice(start, start + ctx.rows)
            grad_CV = _logps(hidden_ND[part], weight_VD, ctx.temperature, start, open_M).exp_().neg_()
            places = torch.arange(len(grad_CV), device=grad_CV.device)
            grad_CV[places, targets_N[part]] += 1.0
            grad_CV.mul_(gradient_N[part, None] / ctx.temperature)
            hidden_grad_ND[part] = grad_CV.to(weight_VD.dtype) @ weight_VD
            weight_grad_VD.addmm_(grad_CV.T, hidden_ND[part].float())
        return hidden_grad_ND, weight_grad_VD.to(weight_VD.dtype), None, None, None, None


class _Kept(torch.autograd.Function):
    """The same with the probabilities kept for the backward pass, in the precision of the projection.

    A chunk is small enough for a processor's cache, and its logits are gone before the next; the backward pass turns
    the probabilities into the gradient of the logits where they lie, so it runs once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        temperature: float,
        open_M: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        rows = max(1, IN_CACHE // len(weight_VD))
        logprobs_N = hidden_ND.new_empty(len(hidden_ND), dtype=torch.float32)
        entropy_N = torch.empty_like(logprobs_N)
        kept_NV = hidden_ND.new_empty(len(hidden_ND), len(weight_VD)) if any(ctx.needs_input_grad) else None
        for start in range(0, len(hidden_ND), rows):
            part = slice(start, start + rows)
            logits_CV = _logits(hidden_ND[part], weight_VD, temperature, start, open_M)
            shares_CV = torch.softmax(logits_CV, dim=-1)
            log_sum_C = logits_CV.amax(-1) - shares_CV.amax(-1).log()
            logprobs_N[part] = logits_CV.gather(1, targets_N[part, None])[:, 0] - log_sum_C
            if kept_NV is not None:
                kept_NV[part] = shares_CV
            terms_CV = shares_CV.mul_(logits_CV)
            entropy_N[part] = log_sum_C - (terms_CV if open_M is None else terms_CV.nan_to_num_(0.0)).sum(-1)
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N)
        ctx.temperature, ctx.kept_NV = temperature, kept_NV
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        hidden_ND, weight_VD, targets_N = ctx.saved_tensors
        grad_NV, ctx.kept_NV = ctx.kept_NV, None
        scale_N = (gradient_N / ctx.temperature).to(grad_NV.dtype)
        places = torch.arange(len(grad_NV), device=grad_NV.device)
        grad_NV[places, targets_N] -= 1.0
        grad_NV.mul_(-scale_N[:, None])
        return grad_NV @ weight_VD, grad_NV.T @ hidden_ND, None, None, None


def _logps(
    hidden_CD: Tensor, weight_VD: Tensor, temperature: float, start: int, open_M: tuple[Tensor, Tensor] | None
) -> Tensor:
    return torch.log_softmax(_logits(hidden_CD, weight_VD, temperature, start, open_M), dim=-1)


def _logits(
    hidden_CD: Tensor, weight_VD: Tensor, temperature: float, start: int, open_M: tuple[Tensor, Tensor] | None
) -> Tensor:
    logits_CV = (hidden_CD @ weight_VD.T).float()
    if temperature != 1.0:
        logits_CV.div_(temperature)
    if open_M is None:
        return logits_CV
    rows_M, ids_M = open_M
    here_M = (rows_M >= start) & (rows_M < start + len(hidden_CD))
    return narrowed(logits_CV, rows_M[here_M] - start, ids_M[here_M])


def narrowed(logits_NV: Tensor, open_rows_M: Tensor, open_ids_M: Tensor) -> Tensor:
    """Logits with -inf at the tokens that were closed to sampling; rows without any pair stay as they are."""
    closed_NV = torch.zeros_like(logits_NV, dtype=torch.bool)
    closed_NV[open_rows_M] = True
    closed_NV[open_rows_M, open_ids_M] = False
    return logits_NV.masked_fill(closed_NV, float("-inf"))
