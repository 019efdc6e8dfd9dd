"""Textual feedback on ranks: hinted turns are scattered over the data ranks, and their gradients are summed like all
others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, distributed
from torch.distributed.fsdp import FSDPModule

from trainer.config import RLConfig
from trainer.distributed import context_parallel
from trainer.distributed.fsdp import Rooted
from trainer.distributed.parallel_dims import Meshes
from trainer.learning.distillation import divergences, metrics, turn_states, weighed
from trainer.types import HintedTurn, TrainGroup


def learn_from_hints(root: Rooted, meshes: Meshes, groups: Sequence[TrainGroup], config: RLConfig) -> dict[str, float]:
    """`trainer.learning.distillation.learn_from_hints` on ranks. A collective call with the same groups everywhere."""
    turns = [turn for group in groups for turn in group.hints]
    if config.textual_feedback.coefficient == 0 or not turns:
        return {}
    used, shift, tokens = 0, 0.0, 0
    at_once = config.textual_feedback.micro_batch_turns * meshes.data_ranks
    for start in range(0, len(turns), at_once):
        mine = turns[start : start + at_once][meshes.data_rank :: meshes.data_ranks]
        # Ranks must walk through the model equally often: who has no turn left computes one that does not count.
        kl_N = _kl(root, meshes, mine or turns[:1], config)
        loss, teaching = weighed(
            kl_N, mine or turns[:1], config.textual_feedback, divisor=config.objective.loss_divisor
        )
        if not mine:
            loss, teaching, kl_N = 0.0 * loss, 0, kl_N[:0]
        if sum(meshes.gathered(teaching)):  # all of them differentiate, or none
            (loss / meshes.config.cp).backward()
        else:  # a pass without a backward one leaves the root's weights gathered: old ones at the next step
            cast(FSDPModule, root).reshard()
        used, shift, tokens = used + teaching, shift + float(kl_N.detach().sum()), tokens + kl_N.numel()
    sums = torch.tensor([used, shift, tokens], dtype=torch.float64, device=meshes.device) / meshes.config.cp
    distributed.all_reduce(sums)
    used, shift, tokens = round(float(sums[0])), float(sums[1]), round(float(sums[2]))
    return metrics(len(turns), used, shift, tokens)


def _kl(root: Rooted, meshes: Meshes, turns: Sequence[HintedTurn], config: RLConfig) -> Tensor:
    """KL [N] of the turns' tokens, with the student's gradients."""
    decode = partial(context_parallel.decoded, meshes=meshes)
    with torch.no_grad():
        teacher_ND = root(turn_states, [turn.hinted_tokens for turn in turns], turns, decode=decode)
    kl_N: Tensor = root(
        divergences,
        teacher_ND,
        turns,
        config.textual_feedback,
        temperature=config.sampling.temperature,
        lm_head_chunk_size=config.parallel.lm_head_chunk_size,
        decode=decode,
    )
    return kl_N
