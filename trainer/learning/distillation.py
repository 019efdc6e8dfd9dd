"""The loss of a hinted turn: the policy that reads the hint teaches the policy that does not, on that turn's tokens.

    L = (c / Z) Σ_turn tokens  min(1, cap / KL_t) · KL_t,     KL_t = KL( π(· | context with hint) ‖ π(· | context) )

Teacher and student are the same weights in the same step; the teacher has no gradient, nothing is decoded again, and all
positions are those that the policy visited (on-policy distillation). The KL is over the teacher's `top_k` tokens and one
bucket for the rest, so that it is a true divergence at any k. Its gradients are added to those of the reward, and Z is
the constant of the policy-gradient loss.

Guards: a token counts at most `cap` nats; a turn on which the hint moves the mean token by less than `min_shift` nats
teaches nothing and is dropped; only the turn's tokens have a loss. The hint is in no stream of the policy-gradient loss,
so that no importance ratio ever sees it. Unpublished: direction, coefficient, k, cap and the teacher's weights.

Shape suffixes: B rows, T padded length, N tokens of the hinted turns, D hidden width, V vocabulary, K the teacher's top tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from trainer.config import RLConfig, TextualFeedbackConfig
from trainer.learning.packing import PAD
from trainer.types import HintedTurn, TrainGroup

Decode = Callable[[PreTrainedModel, Tensor], Tensor]

MIN_PROBABILITY = 1e-8
"""Probability below which the bucket of remaining tokens is not resolved."""


def learn_from_hints(model: PreTrainedModel, groups: Sequence[TrainGroup], config: RLConfig) -> dict[str, float]:
    """Add the gradients of the groups' hinted turns to `model`, just before the reward's step; return metrics.

    Does nothing at coefficient 0 or without hints. A step whose groups all lack signal learns from hints alone.
    """
    turns = [turn for group in groups for turn in group.hints]
    if config.textual_feedback.coefficient == 0 or not turns:
        return {}
    return add_gradients(
        model,
        turns,
        config.textual_feedback,
        temperature=config.sampling.temperature,
        divisor=config.objective.loss_divisor,
        precision=config.parallel.compute_format,
        lm_head_chunk_size=config.parallel.lm_head_chunk_size,
    )


def add_gradients(
    model: PreTrainedModel,
    turns: Sequence[HintedTurn],
    config: TextualFeedbackConfig,
    *,
    temperature: float,
    divisor: float,
    precision: Literal["float32", "bfloat16"] = "float32",
    lm_head_chunk_size: int = 0,
) -> dict[str, float]:
    """Backward pass of L over `micro_batch_turns` turns at a time, with at most `lm_head_chunk_size` logits (0: no
    limit).

    `precision` is the compute format; divergences are in float32.
    """
    kind = next(model.parameters()).device.type
    used, shift, tokens = 0, 0.0, 0
    for start in range(0, len(turns), config.micro_batch_turns):
        batch = turns[start : start + config.micro_batch_turns]
        # Without a cache: weights that the teacher had cast, without gradients, would be the student's too.
        with torch.autocast(kind, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=False):
            with torch.no_grad():
                teacher_ND = turn_states(model, [turn.hinted_tokens for turn in batch], batch)
            kl_N = divergences(
                model, teacher_ND, batch, config, temperature=temperature, lm_head_chunk_size=lm_head_chunk_size
            )
        loss, teaching = weighed(kl_N, batch, config, divisor=divisor)
        if teaching:
            loss.backward()
        used += teaching
        shift += float(kl_N.detach().sum())
        tokens += kl_N.numel()
    return metrics(len(turns), used, shift, tokens)


def metrics(turns: int, used: int, shift: float, tokens: int) -> dict[str, float]:
    return {
        "feedback/turns": float(turns),
        "feedback/dropped": 1.0 - used / turns,
        "feedback/shift": shift / tokens,
    }


def divergences(
    model: PreTrainedModel,
    teacher_ND: Tensor,
    turns: Sequence[HintedTurn],
    config: TextualFeedbackConfig,
    *,
    temperature: float,
    lm_head_chunk_size: int,
    decode: Decode | None = None,
) -> Tensor:
    """KL [N] per token of the given turns, with the student's gradients."""
    student_ND = turn_states(model, [turn.tokens for turn in turns], turns, decode=decode)
    pairs = [(teacher_ND, student_ND)]
    if lm_head_chunk_size:
        size = max(1, lm_head_chunk_size // len(cast(nn.Embedding, model.get_input_embeddings()).weight))
        pairs = list(zip(teacher_ND.split(size), student_ND.split(size), strict=True))
    # Of each part the logits are gone before the next, and are computed again in the backward pass.
    whole = partial(_divergence, model, temperature, config.top_k)
    parts = [checkpoint(whole, *pair, use_reentrant=False) if lm_head_chunk_size else whole(*pair) for pair in pairs]
    return torch.cat(parts)


def weighed(
    kl_N: Tensor, turns: Sequence[HintedTurn], config: TextualFeedbackConfig, *, divisor: float
) -> tuple[Tensor, int]:
    """Loss of the given turns, and the number of turns with enough shift to teach."""
    means = [float(part.mean()) for part in kl_N.detach().split([turn.turn_tokens for turn in turns])]
    keep_N = torch.tensor(
        [mean >= config.min_shift for turn, mean in zip(turns, means, strict=True) for _ in range(turn.turn_tokens)],
        device=kl_N.device,
    )
    capped_N = kl_N * (config.max_token_kl / kl_N.detach().clamp(min=config.max_token_kl))
    return config.coefficient * capped_N[keep_N].sum() / divisor, sum(mean >= config.min_shift for mean in means)


def _divergence(
    model: PreTrainedModel, temperature: float, top_k: int, teacher_ND: Tensor, student_ND: Tensor
) -> Tensor:
    """KL [N] per token."""
    with torch.no_grad():
        teacher_NV = logps(model, teacher_ND, temperature)
    return bucket_kl(teacher_NV, logps(model, student_ND, temperature), top_k=top_k)


def logps(model: PreTrainedModel, hidden_ND: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [N, V] of the sampling distribution."""
    logits_NV = cast(Tensor, model.get_output_embeddings()(hidden_ND)).float() / temperature
    return torch.log_softmax(logits_NV, dim=-1)


def decoded(model: PreTrainedModel, tokens_BT: Tensor) -> Tensor:
    """The decoder's last hidden states [B, T, D]."""
    states_BTD: Tensor = model.get_decoder()(input_ids=tokens_BT, use_cache=False).last_hidden_state
    return states_BTD


def turn_states(
    model: PreTrainedModel,
    rows: Sequence[Sequence[int]],
    turns: Sequence[HintedTurn],
    *,
    decode: Decode | None = None,
) -> Tensor:
    """Hidden states [N, D] that predict the last `turn_tokens` tokens of each row."""
    width = max(len(row) for row in rows)
    device = next(model.parameters()).device
    tokens_BT = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows], device=device)
    hidden_BTD = (decode or decoded)(model, tokens_BT)
    at = [
        b * width + position - 1
        for b, (row, turn) in enumerate(zip(rows, turns, strict=True))
        for position in range(len(row) - turn.turn_tokens, len(row))
    ]
    return hidden_BTD.flatten(0, 1)[torch.tensor(at, device=device)]


def bucket_kl(teacher_NV: Tensor, student_NV: Tensor, *, top_k: int) -> Tensor:
    """KL(teacher ‖ student) [N] over the teacher's `top_k` tokens and one bucket for the rest; 0 uses the whole
    vocabulary."""
    if not 0 < top_k < teacher_NV.shape[1] - 1:
        return (teacher_NV.exp() * (teacher_NV - student_NV)).sum(-1)
    top_NK, index_NK = teacher_NV.topk(top_k, dim=-1)
    same_NK = student_NV.gather(1, index_NK)
    rest_N = (1.0 - top_NK.exp().sum(-1)).clamp(min=MIN_PROBABILITY)
    others_N = (1.0 - same_NK.exp().sum(-1)).clamp(min=MIN_PROBABILITY)
    return (top_NK.exp() * (top_NK - same_NK)).sum(-1) + rest_N * (rest_N.log() - others_N.log())
