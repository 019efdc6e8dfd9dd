"""From token streams to padded micro-batches of bounded size.

Samples are sorted by length so that padding is small, then cut into micro-batches whose padded area B·T stays below
a budget. The order is a pure function of the samples, so that a replayed step sums its gradients in the same order.
Shape suffixes: B rows, T padded length, N policy tokens of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.rollouts.types import TrainSample

PAD = 0
"""Fills rows on the right. Any id does: causal attention never looks at it and no loss position follows it."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    tokens_BT: Tensor
    """Input ids, int64."""
    predict_from_N: Tensor
    """Flat index b·T + t - 1 of the position whose output predicts policy token (b, t), int64."""
    targets_N: Tensor
    """The policy tokens, int64."""
    sampler_logprobs_N: Tensor
    advantages_N: Tensor
    rows_N: Tensor
    """Row b of each policy token, int64."""
    tokens: int
    """Real tokens, padding not counted."""

    def to(self, device: torch.device) -> MicroBatch:
        return MicroBatch(
            self.tokens_BT.to(device),
            self.predict_from_N.to(device),
            self.targets_N.to(device),
            self.sampler_logprobs_N.to(device),
            self.advantages_N.to(device),
            self.rows_N.to(device),
            self.tokens,
        )


def check_sample(sample: TrainSample, *, vocabulary: int) -> None:
    """Raise ValueError naming what is inconsistent in a sample from the wire."""
    length = len(sample.tokens)
    for name in ("loss_mask", "sampler_logprobs", "advantages"):
        if len(getattr(sample, name)) != length:
            raise ValueError(f"sample has {length} tokens but {len(getattr(sample, name))} entries in {name}")
    if not length:
        raise ValueError("sample is empty")
    if sample.loss_mask[0]:
        raise ValueError("the first token of a sample cannot be a policy token: nothing predicts it")
    if min(sample.tokens) < 0 or max(sample.tokens) >= vocabulary:
        raise ValueError(f"sample has token ids outside the vocabulary of {vocabulary}")


def pack(samples: Sequence[TrainSample], *, max_tokens: int) -> list[MicroBatch]:
    """Micro-batches of at most `max_tokens` padded tokens (a longer single sample gets a batch of its own)."""
    order = sorted(range(len(samples)), key=lambda i: (len(samples[i].tokens), i))
    batches: list[MicroBatch] = []
    rows: list[TrainSample] = []
    for index in order:
        sample = samples[index]
        if rows and len(sample.tokens) * (len(rows) + 1) > max_tokens:
            batches.append(_stack(rows))
            rows = []
        rows.append(sample)
    if rows:
        batches.append(_stack(rows))
    return batches


def _stack(rows: Sequence[TrainSample]) -> MicroBatch:
    width = max(len(row.tokens) for row in rows)
    tokens_BT = torch.full((len(rows), width), PAD, dtype=torch.int64)
    predict_from: list[int] = []
    targets: list[int] = []
    sampler: list[float] = []
    advantages: list[float] = []
    owners: list[int] = []
    for b, row in enumerate(rows):
        tokens_BT[b, : len(row.tokens)] = torch.tensor(row.tokens)
        for t, mask in enumerate(row.loss_mask):
            if mask:
                predict_from.append(b * width + t - 1)
                targets.append(row.tokens[t])
                sampler.append(row.sampler_logprobs[t])
                advantages.append(row.advantages[t])
                owners.append(b)
    return MicroBatch(
        tokens_BT=tokens_BT,
        predict_from_N=torch.tensor(predict_from, dtype=torch.int64),
        targets_N=torch.tensor(targets, dtype=torch.int64),
        sampler_logprobs_N=torch.tensor(sampler, dtype=torch.float32),
        advantages_N=torch.tensor(advantages, dtype=torch.float32),
        rows_N=torch.tensor(owners, dtype=torch.int64),
        tokens=sum(len(row.tokens) for row in rows),
    )
