"""The learner of a rank. What it computes together with the others is what `Learner` computes alone.

Rows are dealt over the data ranks; ranks that share a context share rows too, and each scores the tokens that it has.
Log-probabilities are small, so everything that a correction looks at is put together for the whole row on each of
them. Ranks must walk through the model equally often: who has no row left computes one token that has no loss.
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

from trainer.config import ObjectiveConfig, OptimizerConfig
from trainer.learning.correction import Correction
from trainer.learning.lora import Adapters
from trainer.learning.loss import TokenScores, score_tokens
from trainer.learning.packing import PAD, MicroBatch, order, stack
from trainer.learning.step import Learner, Scored
from trainer.parallel import context
from trainer.parallel.balance import cost_of, deal
from trainer.parallel.mesh import Meshes
from trainer.parallel.optimizer import ShardedOptimizer, clip
from trainer.parallel.shard import Rooted, shard, whole_state
from trainer.policy.names import checkpoint_state
from trainer.replay.routing import RoutingCounts
from trainer.rollouts.types import TrainSample
from trainer.weights.probe import Probe, ends, likeliest, made, text


@dataclass(slots=True)
class _Dealt:
    """This rank's rows of the step, by micro-batch: places in the canonical order of its samples."""

    rows: list[list[int]]
    lengths: list[int]
    """Policy tokens of each sample of the step, in the canonical order."""


class ShardedLearner(Learner):
    """`model` is cut in place. All ranks construct it with the same arguments and call everything together."""

    def __init__(
        self,
        model: PreTrainedModel,
        meshes: Meshes,
        *,
        objective: ObjectiveConfig,
        correction: Correction,
        optimizer: OptimizerConfig,
        temperature: float,
        total_steps: int,
        micro_batch_tokens: int,
        reference: PreTrainedModel | None = None,
        adapters: Adapters | None = None,
        repeat_experts: bool = True,
        folder: Path | None = None,
        reference_folder: Path | None = None,
    ) -> None:
        """The folders are where models of `load.py` are read from. Raises RouterUnknown, ParallelRefused, PolicyUnreadable."""
        super().__init__(
            model,
            objective=objective,
            correction=correction,
            optimizer=optimizer,
            temperature=temperature,
            total_steps=total_steps,
            micro_batch_tokens=micro_batch_tokens,
            reference=reference,
            adapters=adapters,
            repeat_experts=repeat_experts,
        )
        self.meshes = meshes
        self.cost = cost_of(model.config)
        self._roots: dict[PreTrainedModel, Rooted] = {model: shard(model, meshes, folder=folder)}
        if reference is not None:
            self._roots[reference] = shard(reference, meshes, folder=reference_folder)
        self.optimizer = ShardedOptimizer(model, optimizer, meshes)
        self._dealt = _Dealt([], [])

    @property
    def root(self) -> Rooted:
        """The policy as ranks call it."""
        return self._roots[self.model]

    def weights(self) -> dict[str, Tensor]:
        """Whole weights on every rank. For small policies: `publish.py` and `checkpoint.py` never hold them all."""
        return checkpoint_state(self.model, dict(whole_state(self.plain_state())))

    def plain_state(self) -> dict[str, Tensor]:
        """What is published and saved, cut as it is here: adapters are merged."""
        return self.adapters.merged_in_place() if self.adapters else self.model.state_dict(keep_vars=True)

    def kept_state(self) -> dict[str, Tensor]:
        """What a checkpoint has beside the weights, cut as it is here: the memory that it is loaded into."""
        return self.optimizer.state_tensors() | (self.adapters.own() if self.adapters else {})

    @torch.no_grad()
    def probe(self) -> Probe:
        """What the policy says of the fixed text, by a forward pass of all ranks."""
        tokens = text(self.model.config.vocab_size)
        batch = _asking(tokens)
        if self.meshes.config.context == 1:
            local, kept_N, decoder = batch, torch.arange(len(batch.targets_N)), dict[str, Any]()
        else:
            local, kept_N, layout = context.cut(batch, self.meshes)
            decoder = self._of_part(layout, rows=1)
        trains, root = self.model.training, self._roots[self.model]
        self.model.eval()
        try:
            mine = likeliest(root(_logits, local.to(self.meshes.device), **decoder))
        finally:
            self.model.train(trains)
            cast(
                FSDPModule, root
            ).reshard()  # a pass without a backward one leaves the root's weights gathered: old ones at the next step
        parts = self.meshes.gathered((kept_N.tolist(), *mine))
        found = {place: row for places, *rows in parts for place, *row in zip(places, *rows, strict=True)}
        ids, logprobs = zip(*(found[place] for place in sorted(found)), strict=True)
        return made(tokens, ids, logprobs)

    def _of_part(self, layout: context.Layout, *, rows: int) -> dict[str, Any]:
        """What the decoder is told of rows of which this rank has a part."""
        return {
            "position_ids": context.positions(layout, rows).to(self.meshes.device),
            "past_key_values": context.GatheringCache(layout),
            "zigzag": layout,
        }

    def _batches(self, samples: Sequence[TrainSample]) -> list[MicroBatch]:
        canonical = order(samples)
        lengths = [len(samples[i].tokens) for i in canonical]
        dealt = deal(lengths, ranks=self.meshes.data_ranks, max_tokens=self.micro_batch_tokens, cost=self.cost)
        mine = dealt[self.meshes.data_rank]
        self._dealt = _Dealt(mine, [sum(samples[i].loss_mask) for i in canonical])
        shape = next(((s.experts.layers, s.experts.top_k) for s in samples if s.experts), None)
        return [stack([samples[canonical[i]] for i in rows]) if rows else _nothing(shape) for rows in mine]

    def _backward(self, batch: MicroBatch) -> tuple[float, Scored]:
        if self.meshes.config.context > 1 and self.replay:
            local, _, _ = context.cut(batch, self.meshes)
            with self.replay.forced(None if local.experts_BTLK is None else local.experts_BTLK.to(self.meshes.device)):
                return self._differentiate(batch.to(self.meshes.device))
        return super()._backward(batch)

    def _score(self, model: PreTrainedModel, batch: MicroBatch) -> TokenScores:
        if self.meshes.config.context == 1:
            return TokenScores(*self._run(model, batch))
        local, kept_N, layout = context.cut(batch, self.meshes)
        logprobs_N, entropy_N = self._run(model, local, **self._of_part(layout, rows=len(batch.tokens_BT)))
        size = len(batch.targets_N)
        whole_N = logprobs_N.new_zeros(size).index_put((kept_N,), logprobs_N)
        known_N = whole_N.detach().clone()
        entropies_N = entropy_N.new_zeros(size).index_put((kept_N,), entropy_N)
        for shared in (known_N, entropies_N):
            distributed.all_reduce(shared, group=layout.group)
        # Values of all tokens, gradients of ours: each rank sums the loss over all and differentiates its own part.
        return TokenScores(whole_N + (known_N - whole_N.detach()), entropies_N)

    def _run(self, model: PreTrainedModel, batch: MicroBatch, **decoder: Any) -> tuple[Tensor, Tensor]:
        scored: tuple[Tensor, Tensor] = self._roots[model](
            _scores, batch, self.temperature, self.meshes.config.logits_at_once, **decoder
        )
        return scored

    def _update(self, rate: float, step: int) -> float:
        norm = clip(self.model, self.meshes, self.optimizer.config.clip_norm)
        self._refuse_non_finite(norm, step)
        self.optimizer.step(rate)
        return norm

    def _of_all_ranks(self, loss: float, tokens: int, scored: list[Scored]) -> tuple[float, int, list[Scored]]:
        """Everyone's facts in the order in which one process would have them."""
        if not scored:
            return 0.0, 0, []
        speaks = self.meshes.context_rank == 0
        parts: dict[int, Scored] = {}
        for rows, facts in zip(self._dealt.rows, scored, strict=True):
            for place, row in zip(rows, _by_row(facts, [self._dealt.lengths[place] for place in rows]), strict=True):
                parts[place] = row
        said = self.meshes.gathered((loss, tokens, parts) if speaks else (0.0, 0, {}))
        everyone = {place: row for _, _, rows in said for place, row in rows.items()}
        together = [everyone[place] for place in sorted(everyone)]
        return sum(part for part, _, _ in said), sum(count for _, count, _ in said), together

    def _effort(
        self, samples: Sequence[TrainSample], batches: Sequence[MicroBatch], seconds: float
    ) -> dict[str, float]:
        """With the memory of the rank that needs most."""
        found = super()._effort(samples, batches, seconds)
        return found | {"memory/trainer": max(self.meshes.gathered(found["memory/trainer"]))} if found else {}

    @property
    def _ranks(self) -> int:
        return self.meshes.world

    def _routing(self) -> RoutingCounts:
        total = RoutingCounts()
        for counts in self.meshes.gathered(super()._routing()):
            total.add(counts)
        return total


def _scores(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, logits_at_once: int, **decoder: Any
) -> tuple[Tensor, Tensor]:
    scores = score_tokens(model, batch, temperature=temperature, logits_at_once=logits_at_once, **decoder)
    return scores.logprobs_N.clone(), scores.entropy_N  # a view would lose FSDP's hook to a later in-place operation


def _logits(model: PreTrainedModel, batch: MicroBatch, **decoder: Any) -> Tensor:
    """Of the positions that predict something, [N, V]."""
    hidden_BTD = model.get_decoder()(input_ids=batch.tokens_BT, use_cache=False, **decoder).last_hidden_state
    head = model.get_output_embeddings()
    assert head is not None
    logits_NV: Tensor = head(hidden_BTD.flatten(0, 1)[batch.predict_from_N])
    return logits_NV


def _asking(tokens: Sequence[int]) -> MicroBatch:
    """The text of a probe as one row, of which only what follows each prompt is of interest."""
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
    """One `Scored` a row. `facts` has the rows' tokens one row after the other."""
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
