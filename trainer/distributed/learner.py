"""The learner's backend on one rank. Together the ranks compute what a learner computes in one process.

Rows are balanced over the data ranks. Context-parallel ranks share rows, and each scores the tokens that it holds.
Log-probabilities are small, so each of them gathers all inputs of a correction for the whole row. All ranks must run
the model equally often: a rank without remaining rows computes one token that has no loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, distributed
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from trainer.config import OptimizerConfig
from trainer.distributed import context_parallel
from trainer.distributed.batch_balancing import balance, cost_of
from trainer.distributed.fsdp import Rooted, shard, whole_state
from trainer.distributed.muon import ShardedOptimizer, clip
from trainer.distributed.parallel_dims import Meshes
from trainer.learning.backend import Precision
from trainer.learning.lora import Adapters
from trainer.learning.loss import Scored, TokenScores, score_tokens
from trainer.learning.packing import PAD, MicroBatch, order, stack
from trainer.policy.names import checkpoint_state
from trainer.router_replay.hooks import RoutingCounts
from trainer.types import TrainSample
from trainer.weights.probe import Probe, ProbeText, ends, likeliest


@dataclass(slots=True)
class _Balanced:
    """This rank's rows of the step, by micro-batch: indices in the canonical order of its samples."""

    rows: list[list[int]]
    lengths: list[int]
    """Policy tokens of each sample of the step, in canonical order."""


class ShardedBackend:
    """`trainer.learning.backend.ParallelBackend` of one rank. All ranks make every call together."""

    def __init__(self, meshes: Meshes, *, folder: Path | None = None, reference_folder: Path | None = None) -> None:
        """The folders hold the models that `load.py` reads."""
        self.meshes = meshes
        self._folder, self._reference_folder = folder, reference_folder
        self._roots: dict[PreTrainedModel, Rooted] = {}
        self._balanced = _Balanced([], [])

    @property
    def precision(self) -> Precision:
        return self.meshes.config.compute_format

    @property
    def ranks(self) -> int:
        return self.meshes.world

    @property
    def root(self) -> Rooted:
        """The policy as ranks call it."""
        return next(iter(self._roots.values()))

    def setup(
        self, model: PreTrainedModel, reference: PreTrainedModel | None, config: OptimizerConfig
    ) -> ShardedOptimizer:
        """Shards both models in place. Raises ParallelRefused, PolicyUnreadable."""
        self.cost = cost_of(model.config)
        self._roots[model] = shard(model, self.meshes, folder=self._folder)
        if reference is not None:
            self._roots[reference] = shard(reference, self.meshes, folder=self._reference_folder)
        return ShardedOptimizer(model, config, self.meshes)

    def full_weights(self, model: PreTrainedModel, adapters: Adapters | None) -> dict[str, Tensor]:
        """For small policies only: `publish.py` and `checkpoint.py` never hold all weights."""
        state = adapters.merged_in_place() if adapters else model.state_dict(keep_vars=True)
        return checkpoint_state(model, dict(whole_state(state)))

    @torch.no_grad()
    def probe(self, asked: ProbeText) -> Probe:
        """Compute the policy's answers to the probe text, in a forward pass of all ranks."""
        root = self.root
        model = root.model
        batch = _asking(asked.tokens)
        if self.meshes.config.cp == 1:
            local, kept_N, decoder = batch, torch.arange(len(batch.targets_N)), dict[str, Any]()
        else:
            local, kept_N, layout = context_parallel.cut(batch, self.meshes)
            decoder = self._of_part(layout, rows=1)
        trains = model.training
        model.eval()
        try:
            mine = likeliest(root(_logits, local.to(self.meshes.device), **decoder))
        finally:
            model.train(trains)
            cast(
                FSDPModule, root
            ).reshard()  # a pass without a backward one leaves the root's weights gathered: old ones at the next step
        parts = self.meshes.gathered((kept_N.tolist(), *mine))
        found = {place: row for places, *rows in parts for place, *row in zip(places, *rows, strict=True)}
        ids, logprobs = zip(*(found[place] for place in sorted(found)), strict=True)
        return asked.probe(ids, logprobs)

    def _of_part(self, layout: context_parallel.Layout, *, rows: int) -> dict[str, Any]:
        """Decoder arguments for rows of which this rank holds a part."""
        return {
            "position_ids": context_parallel.positions(layout, rows).to(self.meshes.device),
            "past_key_values": context_parallel.GatheringCache(layout),
            "zigzag": layout,
        }

    def split(self, samples: Sequence[TrainSample], *, max_tokens: int) -> list[MicroBatch]:
        canonical = order(samples)
        lengths = [len(samples[i].tokens) for i in canonical]
        balanced = balance(lengths, ranks=self.meshes.data_ranks, max_tokens=max_tokens, cost=self.cost)
        mine = balanced[self.meshes.data_rank]
        self._balanced = _Balanced(mine, [sum(samples[i].loss_mask) for i in canonical])
        shape = next(((s.experts.layers, s.experts.top_k) for s in samples if s.experts), None)
        return [stack([samples[canonical[i]] for i in rows]) if rows else _nothing(shape) for rows in mine]

    def local_experts(self, batch: MicroBatch) -> Tensor | None:
        return (
            batch.experts_BTLK
            if self.meshes.config.cp == 1
            else context_parallel.cut(batch, self.meshes)[0].experts_BTLK
        )

    def score(self, model: PreTrainedModel, batch: MicroBatch, *, temperature: float) -> TokenScores:
        if self.meshes.config.cp == 1:
            return TokenScores(*self._run(model, batch, temperature))
        local, kept_N, layout = context_parallel.cut(batch, self.meshes)
        logprobs_N, entropy_N = self._run(model, local, temperature, **self._of_part(layout, rows=len(batch.tokens_BT)))
        size = len(batch.targets_N)
        whole_N = logprobs_N.new_zeros(size).index_put((kept_N,), logprobs_N)
        known_N = whole_N.detach().clone()
        entropies_N = entropy_N.new_zeros(size).index_put((kept_N,), entropy_N)
        for shared in (known_N, entropies_N):
            distributed.all_reduce(shared, group=layout.group)
        # Values of all tokens, gradients of ours: each rank sums the loss over all and differentiates its own part.
        return TokenScores(whole_N + (known_N - whole_N.detach()), entropies_N)

    def _run(
        self, model: PreTrainedModel, batch: MicroBatch, temperature: float, **decoder: Any
    ) -> tuple[Tensor, Tensor]:
        scored: tuple[Tensor, Tensor] = self._roots[model](
            _scores, batch, temperature, self.meshes.config.lm_head_chunk_size, **decoder
        )
        return scored

    def clip_gradients(self, model: PreTrainedModel, max_norm: float) -> float:
        return clip(model, self.meshes, max_norm)

    def gather(self, loss: float, tokens: int, scored: list[Scored]) -> tuple[float, int, list[Scored]]:
        """Sum loss and tokens of all ranks, and gather their tokens' statistics on rank 0, in the order of a single
        process."""
        if not scored:
            return 0.0, 0, []
        speaks = self.meshes.context_rank == 0
        parts: dict[int, Scored] = {}
        for rows, facts in zip(self._balanced.rows, scored, strict=True):
            for place, row in zip(rows, _by_row(facts, [self._balanced.lengths[place] for place in rows]), strict=True):
                parts[place] = row
        said = self.meshes.gathered((loss, tokens) if speaks else (0.0, 0))
        everyone = {place: row for rows in self.meshes.to_first(parts if speaks else {}) for place, row in rows.items()}
        together = [everyone[place] for place in sorted(everyone)]
        return sum(part for part, _ in said), sum(count for _, count in said), together

    def from_first(self, values: dict[str, float]) -> dict[str, float]:
        received: dict[str, float] = self.meshes.from_first(values)
        return received

    def maximum(self, value: float) -> float:
        return max(self.meshes.gathered(value))

    def sum_routing(self, counts: RoutingCounts) -> RoutingCounts:
        total = RoutingCounts()
        for found in self.meshes.gathered(counts):
            total.add(found)
        return total


def _scores(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, lm_head_chunk_size: int, **decoder: Any
) -> tuple[Tensor, Tensor]:
    scores = score_tokens(model, batch, temperature=temperature, lm_head_chunk_size=lm_head_chunk_size, **decoder)
    return scores.logprobs_N.clone(), scores.entropy_N  # a view would lose FSDP's hook to a later in-place operation


def _logits(model: PreTrainedModel, batch: MicroBatch, **decoder: Any) -> Tensor:
    """Logits of the positions that predict a token, [N, V]."""
    hidden_BTD = model.get_decoder()(input_ids=batch.tokens_BT, use_cache=False, **decoder).last_hidden_state
    head = model.get_output_embeddings()
    assert head is not None
    logits_NV: Tensor = head(hidden_BTD.flatten(0, 1)[batch.predict_from_N])
    return logits_NV


def _asking(tokens: Sequence[int]) -> MicroBatch:
    """The probe text as one row, of which only the positions after each prompt are scored."""
    at_N = torch.tensor(ends()) - 1
    none_N = torch.zeros(len(at_N))
    return MicroBatch(
        tokens_BT=torch.tensor([tokens]),
        predict_from_N=at_N,
        targets_N=none_N.long(),
        sampler_logprobs_N=none_N,
        advantages_N=none_N,
        rows_N=none_N.long(),
        tokens=len(tokens),
    )


def _by_row(facts: Scored, lengths: Sequence[int]) -> list[Scored]:
    """Split into one `Scored` per row. `facts` holds the rows' tokens one row after the other."""
    names = [name for name in Scored.__slots__ if getattr(facts, name) is not None]
    parts = {name: getattr(facts, name).split(list(lengths)) for name in names}
    return [replace(facts, **{name: parts[name][row] for name in names}) for row in range(len(lengths))]


def _nothing(experts: tuple[int, int] | None) -> MicroBatch:
    """One row of one token without a loss."""
    none = torch.zeros(0)
    return MicroBatch(
        tokens_BT=torch.full((1, 1), PAD),
        predict_from_N=none.long(),
        targets_N=none.long(),
        sampler_logprobs_N=none,
        advantages_N=none,
        rows_N=none.long(),
        tokens=0,
        experts_BTLK=None if experts is None else torch.full((1, 1, *experts), -1),
    )
