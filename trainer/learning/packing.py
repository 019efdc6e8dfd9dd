"""Packs token streams into padded micro-batches of bounded size.

Samples are sorted by length to keep padding small, then cut into micro-batches whose padded area B·T stays below a
budget. The order is a pure function of the samples, so a replayed step sums its gradients in the same order. Shape
suffixes: B rows, T padded length, N policy tokens of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.learning.kernels.prefix_sharing import PrefixTree, build_prefix_tree
from trainer.routed_experts import UNKNOWN, ReplayRefused
from trainer.types import TrainSample

PAD = 0
"""Right padding. Any id works: causal attention never sees it, and no loss position follows it."""


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
    """Number of tokens without padding."""
    experts_BTLK: Tensor | None = None
    """Recorded experts by position, MoE layer and rank in the choice, int64; negative where there is no record."""
    mask_M: tuple[Tensor, Tensor] | None = None
    """Sampling mask, where sampling was restricted: pairs of (policy token n, allowed id), int64."""
    shared: PrefixTree | None = None
    """Prefix tree of the rows; None where each position is computed separately."""
    lengths: tuple[int, ...] = ()
    """Tokens of each row."""

    def to(self, device: torch.device) -> MicroBatch:
        return MicroBatch(
            self.tokens_BT.to(device),
            self.predict_from_N.to(device),
            self.targets_N.to(device),
            self.sampler_logprobs_N.to(device),
            self.advantages_N.to(device),
            self.rows_N.to(device),
            self.tokens,
            None if self.experts_BTLK is None else self.experts_BTLK.to(device),
            None if self.mask_M is None else (self.mask_M[0].to(device), self.mask_M[1].to(device)),
            None if self.shared is None else self.shared.to(device),
            self.lengths,
        )


def check_sample(sample: TrainSample, *, vocabulary: int) -> None:
    """Validate a sample from the wire. Raises ValueError naming the inconsistency."""
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
    if sample.experts is not None and sample.experts.stop >= length:
        raise ReplayRefused(f"sample of {length} tokens has routed experts up to position {sample.experts.stop}")
    if sample.support is not None:
        allowed_ids = sample.support.unpack()
        if len(allowed_ids) != length:
            raise ReplayRefused(f"sample has {length} tokens and a sampling support of {len(allowed_ids)}")
        for token, mask, ids in zip(sample.tokens, sample.loss_mask, allowed_ids, strict=True):
            if ids and (max(ids) >= vocabulary or (mask and token not in ids)):
                raise ReplayRefused(
                    "the sampling support of a sample leaves out a sampled token or leaves the vocabulary"
                )


def order(samples: Sequence[TrainSample]) -> list[int]:
    """Sample indices in the row order of their micro-batches."""
    return sorted(range(len(samples)), key=lambda i: (len(samples[i].tokens), i))


def pack(samples: Sequence[TrainSample], *, max_tokens: int, share: bool = True) -> list[MicroBatch]:
    """Micro-batches of at most `max_tokens` padded tokens (a longer single sample gets a batch of its own)."""
    batches: list[MicroBatch] = []
    rows: list[TrainSample] = []
    for index in order(samples):
        sample = samples[index]
        if rows and len(sample.tokens) * (len(rows) + 1) > max_tokens:
            batches.append(stack(rows, share=share))
            rows = []
        rows.append(sample)
    if rows:
        batches.append(stack(rows, share=share))
    return batches


def stack(rows: Sequence[TrainSample], *, share: bool = False) -> MicroBatch:
    """Combine rows into one micro-batch, padded to the longest; policy tokens one row after the other.

    `share` allows common prefixes to be computed once, unless experts are recorded: rows may have used different
    experts there.
    """
    width = max(len(row.tokens) for row in rows)
    tokens_BT = torch.full((len(rows), width), PAD, dtype=torch.int64)
    predict_from: list[int] = []
    targets: list[int] = []
    sampler: list[float] = []
    advantages: list[float] = []
    owners: list[int] = []
    open_at: list[int] = []
    allowed_ids: list[int] = []
    for b, row in enumerate(rows):
        tokens_BT[b, : len(row.tokens)] = torch.tensor(row.tokens)
        support = row.support.unpack() if row.support else None
        for t, mask in enumerate(row.loss_mask):
            if mask:
                if support:
                    open_at += [len(targets)] * len(support[t])
                    allowed_ids += support[t]
                predict_from.append(b * width + t - 1)
                targets.append(row.tokens[t])
                sampler.append(row.sampler_logprobs[t])
                advantages.append(row.advantages[t])
                owners.append(b)
    experts_BTLK = _experts(rows, width)
    return MicroBatch(
        tokens_BT=tokens_BT,
        predict_from_N=torch.tensor(predict_from, dtype=torch.int64),
        targets_N=torch.tensor(targets, dtype=torch.int64),
        sampler_logprobs_N=torch.tensor(sampler, dtype=torch.float32),
        advantages_N=torch.tensor(advantages, dtype=torch.float32),
        rows_N=torch.tensor(owners, dtype=torch.int64),
        tokens=sum(len(row.tokens) for row in rows),
        experts_BTLK=experts_BTLK,
        mask_M=(torch.tensor(open_at), torch.tensor(allowed_ids)) if open_at else None,
        shared=build_prefix_tree([row.tokens for row in rows], width) if share and experts_BTLK is None else None,
        lengths=tuple(len(row.tokens) for row in rows),
    )


def _experts(rows: Sequence[TrainSample], width: int) -> Tensor | None:
    """Recorded experts of the rows, -1 where there is no record; None when no row has any."""
    shapes = {(row.experts.layers, row.experts.top_k) for row in rows if row.experts}
    if not shapes:
        return None
    if len(shapes) > 1:
        raise ReplayRefused(f"samples of one step have routed experts of several policies: {sorted(shapes)}")
    experts_BTLK = torch.full((len(rows), width, *shapes.pop()), -1)
    for b, row in enumerate(rows):
        if row.experts:
            record = torch.from_numpy(row.experts.unpack().astype("int64"))
            experts_BTLK[b, row.experts.start : row.experts.stop] = record.masked_fill(record == UNKNOWN, -1)
    return experts_BTLK
