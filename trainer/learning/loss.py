"""The policy-gradient loss over per-token streams, and the log-probabilities that it needs.

    L = -(1/Z) Σ_tokens  w_t · (A_t - β · sg[log π_θ(t) - log π_ref(t)]) · log π_θ(t)

with Z a constant, A_t final per-token advantages, w_t importance weights without gradient (`importance_sampling.py`), and
sg[] = stop gradient. The KL term is the k1 estimator *inside the advantage*: as a direct loss its gradient is zero
in expectation, and the k3 estimator's variance explodes once the policies part.

Log-probabilities are of the distribution that was sampled from: logits divided by the sampling temperature, and only
the tokens that top-k and top-p had left open. Shape suffixes: B rows, T padded length, N policy tokens, V vocabulary, D
hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.learning.kernels.fused_linear_logprob import chunked_scores, mask_logits
from trainer.learning.kernels.prefix_sharing import hidden_states, supports_prefix_sharing
from trainer.learning.packing import MicroBatch


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What the model says about the sampled tokens."""

    logprobs_N: Tensor
    entropy_N: Tensor
    """Entropy in nats of the tempered distribution, without gradient."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Detached per-token values of one micro-batch, kept for the step's statistics. All [N]."""

    weights_N: Tensor
    clipped_N: Tensor
    """Tokens whose weight was clipped, bool."""
    ratio_N: Tensor
    log_ratio_N: Tensor
    """log p_trainer - log p_sampler."""
    entropy_N: Tensor
    k1_N: Tensor | None
    advantages_N: Tensor
    """Advantages as used in the loss."""


def score_tokens(
    model: PreTrainedModel, batch: MicroBatch, *, temperature: float, lm_head_chunk_size: int = 0, **decoder: Any
) -> TokenScores:
    """Log-probabilities of the policy tokens. The vocabulary projection runs at loss positions only.

    `model` is a Hugging Face causal LM: `get_decoder()` gives hidden states, `get_output_embeddings()` projects
    them. Rows are padded on the right, so causal attention needs no padding mask. `lm_head_chunk_size` bounds how many
    logits exist at a time (0: all); `decoder` are more arguments of the decoder.
    """
    if batch.shared is not None and supports_prefix_sharing(model):
        hidden_ND = hidden_states(model, batch.shared)[batch.shared.of_BT.flatten()[batch.predict_from_N]]
    else:
        hidden_BTD = model.get_decoder()(input_ids=batch.tokens_BT, use_cache=False, **decoder).last_hidden_state
        hidden_ND = hidden_BTD.flatten(0, 1)[batch.predict_from_N]
    head = model.get_output_embeddings()
    if isinstance(head, nn.Linear) and getattr(head, "bias", None) is None:
        weight_VD = head.weight
        kind = hidden_ND.device.type
        if torch.is_autocast_enabled(kind):  # the backward pass knows nothing of it, and computes the logits again
            half = torch.get_autocast_dtype(kind)
            hidden_ND, weight_VD = hidden_ND.to(half), weight_VD.to(half)
        return TokenScores(
            *chunked_scores(
                hidden_ND,
                weight_VD,
                batch.targets_N,
                temperature=temperature,
                lm_head_chunk_size=lm_head_chunk_size,
                mask_M=batch.mask_M,
            )
        )
    logits_NV = head(hidden_ND).float() / temperature
    if batch.mask_M is not None:
        logits_NV = mask_logits(logits_NV, *batch.mask_M)
    logps_NV = torch.log_softmax(logits_NV, dim=-1)
    with torch.no_grad():
        terms_NV = logps_NV.exp() * logps_NV
        entropy_N = -(terms_NV if batch.mask_M is None else terms_NV.nan_to_num(0.0)).sum(-1)  # 0·log 0 is 0
    return TokenScores(logprobs_N=logps_NV.gather(1, batch.targets_N[:, None])[:, 0], entropy_N=entropy_N)


def kl_adjusted_advantages(
    advantages_N: Tensor, logprobs_N: Tensor, reference_logprobs_N: Tensor | None, *, coefficient: float
) -> Tensor:
    """A_t - β·(log π_θ - log π_ref), without gradient; just A_t when there is no reference."""
    if reference_logprobs_N is None or coefficient == 0.0:
        return advantages_N
    return advantages_N - coefficient * (logprobs_N.detach() - reference_logprobs_N.detach())


def policy_loss(logprobs_N: Tensor, advantages_N: Tensor, weights_N: Tensor, *, divisor: float) -> Tensor:
    """-(1/Z) Σ w·A·log π: a sum over tokens by a constant, so that no length changes a token's weight."""
    return -(weights_N.detach() * advantages_N.detach() * logprobs_N).sum() / divisor
