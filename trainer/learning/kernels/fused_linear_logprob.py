"""Fused linear log-probabilities: processes a large vocabulary's logits in chunks, forward and backward.

The backward pass recomputes the projection to the vocabulary, so only hidden states and three numbers per token stay in
memory. The formulas per row are those of the plain path:

    log p(y) = z_y − log Σ exp z,   ∂ log p(y) / ∂z = 1[y] − p,   H = log Σ exp z − Σ p·z,   z = W·h / temperature

The gradient of W is summed in float32 whatever the format of the weights.

Shape suffixes: N policy tokens, D hidden width, V vocabulary, C tokens of a chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.learning.kernels.cpu.bf16 import loops_for, rows

IN_CACHE = 1 << 19
"""Logits processed at a time on a CPU: 2 MiB of float32."""
ON_DEVICE = 1 << 26
"""Logits processed at a time on a GPU, which needs larger batches: 256 MiB."""


def chunked_scores(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    *,
    temperature: float,
    lm_head_chunk_size: int,
    mask_M: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets [N], with gradient, and entropies [N], without.

    At most `lm_head_chunk_size` logits exist at a time, and at least one row of them. With 0 all probabilities are kept
    for the backward pass, which is faster. `mask_M`: see `MicroBatch`.
    """
    if not lm_head_chunk_size:
        kept: tuple[Tensor, Tensor] = _Kept.apply(hidden_ND, weight_VD, targets_N, temperature, mask_M)
        return kept
    size = max(1, lm_head_chunk_size // len(weight_VD))
    scores: tuple[Tensor, Tensor] = _Chunked.apply(hidden_ND, weight_VD, targets_N, temperature, size, mask_M)
    return scores


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        temperature: float,
        size: int,
        mask_M: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        logprobs_N = hidden_ND.new_empty(len(hidden_ND), dtype=torch.float32)
        entropy_N = torch.empty_like(logprobs_N)
        for start in range(0, len(hidden_ND), size):
            part = slice(start, start + size)
            logps_CV = chunk_logps(hidden_ND[part], weight_VD, temperature, start, mask_M)
            logprobs_N[part] = logps_CV.gather(1, targets_N[part, None])[:, 0]
            terms_CV = logps_CV.exp().mul_(logps_CV)
            entropy_N[part] = -(terms_CV if mask_M is None else terms_CV.nan_to_num_(0.0)).sum(-1)
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N, *(mask_M or ()))
        ctx.temperature, ctx.size = temperature, size
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        hidden_ND, weight_VD, targets_N, *pairs = ctx.saved_tensors
        mask_M = (pairs[0], pairs[1]) if pairs else None
        hidden_grad_ND = torch.empty_like(hidden_ND)
        weight_grad_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        for start in range(0, len(hidden_ND), ctx.size):
            part = slice(start, start + ctx.size)
            grad_CV = chunk_logps(hidden_ND[part], weight_VD, ctx.temperature, start, mask_M).exp_().neg_()
            places = torch.arange(len(grad_CV), device=grad_CV.device)
            grad_CV[places, targets_N[part]] += 1.0
            grad_CV.mul_(gradient_N[part, None] / ctx.temperature)
            hidden_grad_ND[part] = grad_CV.to(weight_VD.dtype) @ weight_VD
            weight_grad_VD.addmm_(grad_CV.T, hidden_ND[part].float())
        return hidden_grad_ND, weight_grad_VD.to(weight_VD.dtype), None, None, None, None


class _Kept(torch.autograd.Function):
    """The same with p − 1[y] kept for the backward pass, in the precision of the projection.

    A chunk fits a processor's cache, and its logits are freed before the next. Factors on a token's gradient are
    multiplied into its hidden state, which is far smaller.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        temperature: float,
        mask_M: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        logprobs_N = hidden_ND.new_empty(len(hidden_ND), dtype=torch.float32)
        entropy_N = torch.empty_like(logprobs_N)
        kept_NV = hidden_ND.new_empty(len(hidden_ND), len(weight_VD)) if any(ctx.needs_input_grad) else None
        size = max(1, (IN_CACHE if hidden_ND.device.type == "cpu" else ON_DEVICE) // len(weight_VD))
        for start in range(0, len(hidden_ND), size):
            part = slice(start, start + size)
            kept_CV = None if kept_NV is None else kept_NV[part]
            found = logprobs_N[part], entropy_N[part]
            if mask_M is None and (loops := _loops(hidden_ND, weight_VD)):
                logits_CV = torch.mm(hidden_ND[part], weight_VD.T, out=kept_CV)
                given = rows(logits_CV), np.float32(1.0 / temperature), targets_N[part].numpy()
                room_V = np.empty(len(weight_VD), np.float32)
                loops.scores(*given, *(values.numpy() for values in found), room_V, kept_CV is not None)
            else:
                logits_CV = _logits(hidden_ND[part], weight_VD, temperature, start, mask_M)
                _score(logits_CV, targets_N[part], *found, kept_CV, masked=mask_M is not None)
        ctx.save_for_backward(hidden_ND, weight_VD, kept_NV)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        hidden_ND, weight_VD, kept_NV = ctx.saved_tensors
        scale_N1 = (gradient_N / -ctx.temperature).to(kept_NV.dtype)[:, None]
        return (kept_NV @ weight_VD).mul_(scale_N1), kept_NV.T @ (hidden_ND * scale_N1), None, None, None


def _loops(hidden_ND: Tensor, weight_VD: Tensor) -> Any:
    """Compiled loops, or None where they do not apply or are slower."""
    return loops_for(hidden_ND) if hidden_ND.dtype == weight_VD.dtype == torch.bfloat16 else None


def _score(
    logits_CV: Tensor,
    targets_C: Tensor,
    logprobs_C: Tensor,
    entropy_C: Tensor,
    kept_CV: Tensor | None,
    *,
    masked: bool,
) -> None:
    """Fill the output tensors; masked (`masked`) logits may be -inf."""
    shares_CV = torch.softmax(logits_CV, dim=-1)
    log_sum_C = logits_CV.amax(-1) - shares_CV.amax(-1).log()
    logprobs_C.copy_(logits_CV.gather(1, targets_C[:, None])[:, 0] - log_sum_C)
    if kept_CV is not None:
        kept_CV.copy_(shares_CV)
        kept_CV[torch.arange(len(kept_CV), device=kept_CV.device), targets_C] -= 1.0
    terms_CV = shares_CV.mul_(logits_CV)
    entropy_C.copy_(log_sum_C - (terms_CV.nan_to_num_(0.0) if masked else terms_CV).sum(-1))


def chunk_logps(
    hidden_CD: Tensor, weight_VD: Tensor, temperature: float, start: int, mask_M: tuple[Tensor, Tensor] | None
) -> Tensor:
    return torch.log_softmax(_logits(hidden_CD, weight_VD, temperature, start, mask_M), dim=-1)


def _logits(
    hidden_CD: Tensor, weight_VD: Tensor, temperature: float, start: int, mask_M: tuple[Tensor, Tensor] | None
) -> Tensor:
    logits_CV = (hidden_CD @ weight_VD.T).float()
    if temperature != 1.0:
        logits_CV.div_(temperature)
    if mask_M is None:
        return logits_CV
    rows_M, ids_M = mask_M
    here_M = (rows_M >= start) & (rows_M < start + len(hidden_CD))
    return mask_logits(logits_CV, rows_M[here_M] - start, ids_M[here_M])


def mask_logits(logits_NV: Tensor, open_rows_M: Tensor, open_ids_M: Tensor) -> Tensor:
    """Logits with -inf at tokens outside the sampling mask; rows without any pair stay unchanged."""
    closed_NV = torch.zeros_like(logits_NV, dtype=torch.bool)
    closed_NV[open_rows_M] = True
    closed_NV[open_rows_M, open_ids_M] = False
    return logits_NV.masked_fill(closed_NV, float("-inf"))
