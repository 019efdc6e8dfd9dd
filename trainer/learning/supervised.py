"""One supervised step: weighted next-token loss over token streams. Mid-training and SFT share it.

Shape suffixes: B rows, T padded length, N positions with a loss.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from trainer.config import OptimizerConfig
from trainer.learning.effort import Effort, Tokens
from trainer.learning.optimizers import NamedOptimizer, learning_rate
from trainer.learning.packing import PAD
from trainer.learning.step import NonFiniteGradients


class Example(NamedTuple):
    """One row. `weights[t]` is the loss weight of predicting `ids[t]`; `weights[0]` has no effect."""

    ids: list[int]
    weights: list[float]
    starts: tuple[int, ...] = (0,)
    """Where documents begin in a packed row (`stages/packing.py`): none of them sees another."""


def batches(examples: Iterator[Example], *, batch_tokens: int, seed: int, pool: int = 256) -> Iterator[list[Example]]:
    """Batches of about `batch_tokens` tokens, each of similar lengths, in seeded order. Endless if its input is."""
    order = random.Random(f"batches:{seed}")
    while True:
        drawn = [example for _, example in zip(range(pool), examples, strict=False)]
        if not drawn:
            return
        drawn.sort(key=lambda example: len(example.ids))
        cut: list[list[Example]] = [[]]
        for example in drawn:
            if cut[-1] and len(example.ids) * (len(cut[-1]) + 1) > batch_tokens:
                cut.append([])
            cut[-1].append(example)
        order.shuffle(cut)
        yield from cut


class SupervisedLearner:
    """Owns the trained model and its optimizer. Computes in bfloat16 where it pays, keeps float32 weights."""

    def __init__(self, model: PreTrainedModel, *, optimizer: OptimizerConfig, total_steps: int) -> None:
        self.model = model
        self.optimizer = NamedOptimizer(model, optimizer)
        self.total_steps = total_steps
        self.effort = Effort(model, formats=(torch.bfloat16, torch.float32))
        model.train()

    def train(self, batch: Sequence[Example], *, step: int) -> dict[str, float]:
        """One optimiser step (counted from 1); returns its metrics. Raises NonFiniteGradients."""
        started = time.perf_counter()
        loss, accuracy = weighted_loss(self.model, batch)
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.optimizer.config.clip_norm))
        if not math.isfinite(norm):
            self.model.zero_grad(set_to_none=True)
            raise NonFiniteGradients(step, norm)
        rate = learning_rate(self.optimizer.config, step, self.total_steps)
        self.optimizer.step(rate)
        return {
            "loss/train": float(loss.detach()),
            "loss/accuracy": accuracy,
            "optim/grad_norm": norm,
            "optim/learning_rate": rate,
            "tokens/trained": float(sum(len(example.ids) for example in batch)),
            **self.effort.metrics(
                work_of(batch), time.perf_counter() - started, device=next(self.model.parameters()).device
            ),
        }


def work_of(batch: Sequence[Example]) -> Tokens:
    """Documents of a packed row do not see each other."""
    lengths = [
        end - start for row in batch for start, end in zip(row.starts, [*row.starts[1:], len(row.ids)], strict=True)
    ]
    return Tokens.of_rows(lengths, sum(weight > 0 for row in batch for weight in row.weights[1:]))


def weighted_loss(model: PreTrainedModel, batch: Sequence[Example]) -> tuple[Tensor, float]:
    """Weighted mean cross-entropy in nats, and the share of weighted tokens that are the model's first choice."""
    width = max(len(example.ids) for example in batch)
    tokens_BT = torch.tensor([example.ids + [PAD] * (width - len(example.ids)) for example in batch])
    weights_BT = torch.tensor([example.weights + [0.0] * (width - len(example.weights)) for example in batch])
    wanted_BT = functional.pad(weights_BT[:, 1:] > 0, (0, 1))
    with torch.autocast("cpu", torch.bfloat16):
        hidden_BTD = model.get_decoder()(
            input_ids=tokens_BT, position_ids=positions(batch, width), use_cache=False
        ).last_hidden_state
        logits_NV = model.get_output_embeddings()(hidden_BTD[wanted_BT])
    targets_N = tokens_BT[:, 1:][wanted_BT[:, :-1]]
    weights_N = weights_BT[:, 1:][wanted_BT[:, :-1]]
    losses_N = functional.cross_entropy(logits_NV.float(), targets_N, reduction="none")
    right_N = (logits_NV.argmax(-1) == targets_N).float()
    total = weights_N.sum()
    return (losses_N * weights_N).sum() / total, float((right_N * weights_N).sum() / total)


def positions(batch: Sequence[Example], width: int) -> Tensor | None:
    """Position ids [B, T] that begin again with each document; None when every row is one document.

    Transformers reads packed documents from them and keeps attention inside each (`find_packed_sequence_indices`).
    """
    if all(len(example.starts) == 1 for example in batch):
        return None
    rows = []
    for example in batch:
        ends = [*example.starts[1:], width]
        rows.append([at for start, end in zip(example.starts, ends, strict=True) for at in range(end - start)])
    return torch.tensor(rows)


__all__ = ["Example", "SupervisedLearner", "batches", "positions", "weighted_loss"]
