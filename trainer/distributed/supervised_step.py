"""The supervised step on several ranks: the weighted mean over all tokens of the batch.

Every rank knows the whole batch, so the divisor needs no communication. Rows are balanced as in reinforcement learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from transformers import PreTrainedModel

from trainer.config import OptimizerConfig
from trainer.distributed import context_parallel
from trainer.distributed.batch_balancing import balance, cost_of
from trainer.distributed.fsdp import shard
from trainer.distributed.muon import ShardedOptimizer, clip
from trainer.distributed.parallel_dims import Meshes
from trainer.learning.clock import now
from trainer.learning.flops import FlopsCounter
from trainer.learning.loss import score_tokens
from trainer.learning.optimizers import learning_rate
from trainer.learning.packing import PAD, MicroBatch
from trainer.learning.step import NonFiniteGradients
from trainer.learning.supervised import Example, positions, total_weight, work_of

NOTHING = Example([PAD], [0.0])


class ShardedSupervisedLearner:
    """`trainer.learning.supervised.SupervisedLearner` on ranks. Shards `model` in place; all ranks make every call
    together."""

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
        """`micro_batch_tokens`: maximum padded tokens of one pass on a rank, 0 for its share of a step. `folder`:
        source of a model of `load.py`. Raises ParallelRefused, PolicyUnreadable.
        """
        self.model = model
        self.meshes = meshes
        self.cost = cost_of(model.config)
        self.flops = FlopsCounter(model, precision=meshes.config.compute_format)
        model.train()
        self.root = shard(model, meshes, folder=folder)
        self.optimizer = ShardedOptimizer(model, optimizer, meshes)
        self.total_steps = total_steps
        self.micro_batch_tokens = micro_batch_tokens

    def published_state(self) -> dict[str, Tensor]:
        """Weights to save, sharded as on this rank."""
        return self.model.state_dict(keep_vars=True)

    def resume_state(self) -> dict[str, Tensor]:
        """Checkpoint state beside the weights, sharded as on this rank; loading writes into this memory."""
        return self.optimizer.state_tensors()

    def train(self, batch: Sequence[Example], *, step: int) -> dict[str, float]:
        """Take one optimiser step (counted from 1) and return its metrics. Raises NonFiniteGradients."""
        started = now(self.meshes.device)
        loss = self._all_rows(batch, learn=True)
        norm = clip(self.model, self.meshes, self.optimizer.config.max_grad_norm)
        if not torch.isfinite(torch.tensor(norm)):
            self.model.zero_grad(set_to_none=True)
            raise NonFiniteGradients(step, norm)
        rate = learning_rate(self.optimizer.config, step, self.total_steps)
        self.optimizer.step(rate)
        seconds = now(self.meshes.device) - started
        effort = self.flops.metrics(work_of(batch), seconds, device=self.meshes.device, ranks=self.meshes.world)
        effort["memory/trainer"] = max(self.meshes.gathered(effort["memory/trainer"]))
        return {
            "loss/train": loss,
            "optim/grad_norm": norm,
            "optim/learning_rate": rate,
            "tokens/trained": float(sum(len(example.ids) for example in batch)),
            **effort,
        }

    def loss(self, batch: Sequence[Example]) -> float:
        """The loss that `train` would report for the batch, without learning."""
        self.model.eval()
        with torch.no_grad():
            found = self._all_rows(batch, learn=False)
        self.model.train()
        return found

    def _all_rows(self, batch: Sequence[Example], *, learn: bool) -> float:
        """Weighted mean loss over all rows, balanced over the ranks; computes gradients if `learn`."""
        total = total_weight(batch)
        lengths = [len(example.ids) for example in batch]
        share = max(lengths) * -(-len(batch) // self.meshes.data_ranks)
        if self.micro_batch_tokens:
            share = min(share, self.micro_batch_tokens)
        balanced = balance(lengths, ranks=self.meshes.data_ranks, max_tokens=share, cost=self.cost)
        loss = torch.zeros((), device=self.meshes.device)
        for rows in balanced[self.meshes.data_rank]:
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
        if self.meshes.config.cp == 1:
            at_BT = positions(rows, batch.tokens_BT.shape[1])
            decoder: dict[str, Any] = {} if at_BT is None else {"position_ids": at_BT.to(self.meshes.device)}
        else:
            batch, _, layout = context_parallel.cut(
                batch, self.meshes, [row.starts for row in rows] if several else None
            )
            decoder = {
                "position_ids": context_parallel.positions(layout, len(rows)).to(self.meshes.device),
                "past_key_values": context_parallel.GatheringCache(layout),
                "zigzag": layout,
            }
        logprobs_N: Tensor = self.root(_logprobs, batch, self.meshes.config.lm_head_chunk_size, **decoder)
        return -(batch.advantages_N * logprobs_N).sum()


def _logprobs(model: PreTrainedModel, batch: MicroBatch, lm_head_chunk_size: int, **decoder: Any) -> Tensor:
    scores = score_tokens(model, batch, temperature=1.0, lm_head_chunk_size=lm_head_chunk_size, **decoder)
    return scores.logprobs_N.clone()  # a view would lose FSDP's hook to a later in-place operation


def _stack(rows: Sequence[Example]) -> MicroBatch:
    """Micro-batch of tokens with a weight; the weight replaces the advantage of reinforcement learning."""
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
