"""The supervised step on several ranks: the weighted mean over all tokens of the batch, wherever they are computed.

Every rank knows the whole batch, so the divisor needs no communication; rows are dealt as in reinforcement learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from transformers import PreTrainedModel

from trainer.config import OptimizerConfig
from trainer.learning.clock import now
from trainer.learning.effort import Effort
from trainer.learning.loss import score_tokens
from trainer.learning.optimizers import learning_rate
from trainer.learning.packing import PAD, MicroBatch
from trainer.learning.step import NonFiniteGradients
from trainer.learning.supervised import Example, positions, total_weight, work_of
from trainer.parallel import context
from trainer.parallel.balance import cost_of, deal
from trainer.parallel.mesh import Meshes
from trainer.parallel.optimizer import ShardedOptimizer, clip
from trainer.parallel.shard import shard

NOTHING = Example([PAD], [0.0])


class ShardedSupervisedLearner:
    """`trainer.learning.supervised.SupervisedLearner` on ranks. `model` is cut in place; all ranks call together."""

    def __init__(
        self,
        model: PreTrainedModel,
        meshes: Meshes,
        *,
        optimizer: OptimizerConfig,
        total_steps: int,
        micro_batch_tokens: int = 0,
        folder: Path | None = None,
    ) -> None:
        """`micro_batch_tokens`: most padded tokens of one pass of a rank, 0 for its share of a step. `folder`: where a model
        of `load.py` is read from. Raises ParallelRefused, PolicyUnreadable."""
        self.model = model
        self.meshes = meshes
        self.cost = cost_of(model.config)
        half = meshes.config.precision == "bfloat16"
        self.effort = Effort(model, formats=(torch.bfloat16 if half else torch.float32,))
        model.train()
        self.root = shard(model, meshes, folder=folder)
        self.optimizer = ShardedOptimizer(model, optimizer, meshes)
        self.total_steps = total_steps
        self.micro_batch_tokens = micro_batch_tokens

    def plain_state(self) -> dict[str, Tensor]:
        """What is saved, cut as it is here."""
        return self.model.state_dict(keep_vars=True)

    def kept_state(self) -> dict[str, Tensor]:
        """What a checkpoint has beside the weights, cut as it is here: the memory that it is loaded into."""
        return self.optimizer.state_tensors()

    def train(self, batch: Sequence[Example], *, step: int) -> dict[str, float]:
        """One optimiser step (counted from 1); returns its metrics. Raises NonFiniteGradients."""
        started = now(self.meshes.device)
        loss = self._all_rows(batch, learn=True)
        norm = clip(self.model, self.meshes, self.optimizer.config.clip_norm)
        if not torch.isfinite(torch.tensor(norm)):
            self.model.zero_grad(set_to_none=True)
            raise NonFiniteGradients(step, norm)
        rate = learning_rate(self.optimizer.config, step, self.total_steps)
        self.optimizer.step(rate)
        seconds = now(self.meshes.device) - started
        effort = self.effort.metrics(work_of(batch), seconds, device=self.meshes.device, ranks=self.meshes.world)
        effort["memory/trainer"] = max(self.meshes.gathered(effort["memory/trainer"]))
        return {
            "loss/train": loss,
            "optim/grad_norm": norm,
            "optim/learning_rate": rate,
            "tokens/trained": float(sum(len(example.ids) for example in batch)),
            **effort,
        }

    def loss(self, batch: Sequence[Example]) -> float:
        """What `train` would report of the batch, without learning from it."""
        self.model.eval()
        with torch.no_grad():
            found = self._all_rows(batch, learn=False)
        self.model.train()
        return found

    def _all_rows(self, batch: Sequence[Example], *, learn: bool) -> float:
        """Weighted mean of the losses of all rows, which are dealt over the ranks; with gradients if asked for."""
        total = total_weight(batch)
        lengths = [len(example.ids) for example in batch]
        share = max(lengths) * -(-len(batch) // self.meshes.data_ranks)
        if self.micro_batch_tokens:
            share = min(share, self.micro_batch_tokens)
        dealt = deal(lengths, ranks=self.meshes.data_ranks, max_tokens=share, cost=self.cost)
        loss = torch.zeros((), device=self.meshes.device)
        for rows in dealt[self.meshes.data_rank]:
            part = self._loss([batch[row] for row in rows] or [NOTHING]) / total
            if learn:
                part.backward()
            loss += part.detach()
        distributed.all_reduce(loss)
        return float(loss)

    def _loss(self, rows: Sequence[Example]) -> Tensor:
        """Weighted sum of this rank's next-token losses."""
        batch = _stack(rows).to(self.meshes.device)
        several = any(len(row.starts) > 1 for row in rows)
        if self.meshes.config.context == 1:
            at_BT = positions(rows, batch.tokens_BT.shape[1])
            decoder: dict[str, Any] = {} if at_BT is None else {"position_ids": at_BT.to(self.meshes.device)}
        else:
            batch, _, layout = context.cut(batch, self.meshes, [row.starts for row in rows] if several else None)
            decoder = {
                "position_ids": context.positions(layout, len(rows)).to(self.meshes.device),
                "past_key_values": context.GatheringCache(layout),
                "zigzag": layout,
            }
        logprobs_N: Tensor = self.root(_logprobs, batch, self.meshes.config.logits_at_once, **decoder)
        return -(batch.advantages_N * logprobs_N).sum()


def _logprobs(model: PreTrainedModel, batch: MicroBatch, logits_at_once: int, **decoder: Any) -> Tensor:
    scores = score_tokens(model, batch, temperature=1.0, logits_at_once=logits_at_once, **decoder)
    return scores.logprobs_N.clone()  # a view would lose FSDP's hook to a later in-place operation


def _stack(rows: Sequence[Example]) -> MicroBatch:
    """Tokens with a weight, which stands where reinforcement learning has the advantage."""
    width = max(len(row.ids) for row in rows)
    places = [(b, t) for b, row in enumerate(rows) for t in range(1, len(row.ids)) if row.weights[t] > 0]
    weights_N = torch.tensor([rows[b].weights[t] for b, t in places])
    return MicroBatch(
        tokens_BT=torch.tensor([row.ids + [PAD] * (width - len(row.ids)) for row in rows]),
        predict_from_N=torch.tensor([b * width + t - 1 for b, t in places], dtype=torch.int64),
        targets_N=torch.tensor([rows[b].ids[t] for b, t in places], dtype=torch.int64),
        sampler_logprobs_N=torch.zeros(len(places)),
        advantages_N=weights_N,
        rows_N=torch.tensor([b for b, _ in places], dtype=torch.int64),
        tokens=sum(len(row.ids) for row in rows),
    )
