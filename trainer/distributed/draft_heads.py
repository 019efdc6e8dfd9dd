"""Draft-head training with a sharded policy as the teacher: each rank has the head, and some of the sequences.

The head's gradients are computed within the root's forward pass, while the vocabulary's weights are gathered. Nothing
but the head is differentiated.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, distributed
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from trainer.distributed import context_parallel
from trainer.distributed.fsdp import Rooted
from trainer.distributed.parallel_dims import Meshes
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.mtp.distil import Lesson, lesson, study


class OnRanks:
    """`trainer.inference.mtp.distil.Teacher` over all ranks, which make every call together with the same sequences."""

    def __init__(self, root: Rooted, meshes: Meshes) -> None:
        self._root, self._meshes = root, meshes
        self.hidden = int(root.model.config.hidden_size)
        self.device = meshes.device

    def teach(self, head: MultiToken, tokens_BT: Tensor, ahead: int, *, learn: bool) -> Lesson:
        mine_BT = tokens_BT[self._meshes.data_rank :: self._meshes.data_ranks]
        # Ranks must walk through the policy equally often: who has no sequence left computes one that does not count.
        counted = float(len(mine_BT) > 0) / self._meshes.config.cp
        with torch.no_grad():
            sums, *gradients = self._root(
                _taught, self._meshes, head, mine_BT if counted else tokens_BT[:1], ahead, learn
            )
        # A pass without a backward one leaves the root's weights gathered.
        cast(FSDPModule, self._root).reshard()
        for tensor in (sums, *gradients):
            distributed.all_reduce(tensor.mul_(counted))
        return lesson(head, sums, gradients, len(tokens_BT))


def _taught(
    model: PreTrainedModel, meshes: Meshes, head: MultiToken, tokens_BT: Tensor, ahead: int, learn: bool
) -> tuple[Tensor, ...]:
    hidden_BTC = context_parallel.decoded(model, tokens_BT, meshes)
    sums, gradients = study(model, head, hidden_BTC, tokens_BT, ahead, learn=learn)
    return (sums, *gradients)
