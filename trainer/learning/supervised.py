"""One supervised step: weighted next-token loss over token streams. Mid-training and SFT share it.

Shape suffixes: B rows, T padded length, N positions with a loss.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from trainer.config import OptimizerConfig
from trainer.learning.clock import now
from trainer.learning.flops import FlopsCounter, Tokens
from trainer.learning.kernels import prefix_attention, supports_prefix_sharing
from trainer.learning.kernels.fused_linear_logprob import chunked_scores
from trainer.learning.kernels.prefix_sharing import PrefixTree, build_prefix_tree, hidden_states
from trainer.learning.optimizers import NamedOptimizer, learning_rate
from trainer.learning.packing import PAD
from trainer.learning.step import NonFiniteGradients

Precision = Literal["float32", "bfloat16"]


class Example(NamedTuple):
    """One row. `weights[t]` is the loss weight of predicting `ids[t]`; `weights[0]` has no effect."""

    ids: list[int]
    weights: list[float]
    starts: tuple[int, ...] = (0,)
    """Document starts in a packed row (`midtrain/packing.py`); documents do not attend to each other."""


def batches(examples: Iterator[Example], *, batch_tokens: int, seed: int, pool: int = 256) -> Iterator[list[Example]]:
    """Batches of about `batch_tokens` tokens, each of similar lengths, in seeded order. Endless if the input is."""
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


_UNLEARNED_TOKENS = 4096
"""Most padded tokens of one pass that only measures, where no other bound is set."""


class SupervisedLearner:
    """Owns the trained model and its optimizer. The weights are float32, whatever the compute format."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        optimizer: OptimizerConfig,
        total_steps: int,
        micro_batch_tokens: int = 0,
        lm_head_chunk_size: int = 0,
        precision: Precision = "bfloat16",
    ) -> None:
        """`micro_batch_tokens`: maximum padded tokens of one pass, 0 for the whole step. `lm_head_chunk_size` and
        `precision`: see `weighted_loss`.
        """
        self.model = model
        self.optimizer = NamedOptimizer(model, optimizer)
        self.total_steps = total_steps
        self.precision: Precision = precision
        self.flops = FlopsCounter(model, precision=precision)
        self.micro_batch_tokens = micro_batch_tokens
        self.lm_head_chunk_size = lm_head_chunk_size
        model.train()

    def train(self, batch: Sequence[Example], *, step: int) -> dict[str, float]:
        """One optimiser step (counted from 1); returns its metrics. Raises NonFiniteGradients."""
        device = next(self.model.parameters()).device
        started = now(device)
        loss, right, work = self._passes(batch, learn=True)
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.optimizer.config.max_grad_norm))
        if not math.isfinite(norm):
            self.model.zero_grad(set_to_none=True)
            raise NonFiniteGradients(step, norm)
        rate = learning_rate(self.optimizer.config, step, self.total_steps)
        self.optimizer.step(rate)
        return {
            "loss/train": loss,
            **({} if right is None else {"loss/accuracy": right}),
            "optim/grad_norm": norm,
            "optim/learning_rate": rate,
            "tokens/trained": float(sum(len(example.ids) for example in batch)),
            **self.flops.metrics(work, now(device) - started, device=device),
        }

    def loss(self, batch: Sequence[Example]) -> float:
        """The loss that `train` would report for the batch, without learning. Rows of like length share a pass."""
        self.model.eval()
        with torch.no_grad():
            rows = sorted(batch, key=lambda example: len(example.ids))
            found, _, _ = self._passes(rows, learn=False)
        self.model.train()
        return found

    def _passes(self, batch: Sequence[Example], *, learn: bool) -> tuple[float, float | None, Tokens]:
        """Weighted mean over the whole batch, accumulated over parts of it, and the work of all parts."""
        parts = cut(batch, self.micro_batch_tokens or (0 if learn else _UNLEARNED_TOKENS))
        total = total_weight(batch) if len(parts) > 1 else None
        loss, right, known = 0.0, 0.0, True
        work = Tokens(0, 0, 0)
        for part in parts:
            shared = common_prefixes(self.model, part)
            with prefix_attention(self.model, shared):
                mean, accuracy = weighted_loss(
                    self.model,
                    part,
                    total=total,
                    lm_head_chunk_size=self.lm_head_chunk_size,
                    precision=self.precision,
                    shared=shared,
                )
                if learn:
                    mean.backward()
            loss += float(mean.detach())
            known = accuracy is not None
            right += accuracy or 0.0
            work += work_of(part, shared)
        return loss, right if known else None, work


def common_prefixes(model: PreTrainedModel, batch: Sequence[Example]) -> PrefixTree | None:
    """The rows' prefix tree where it saves a tenth of their tokens: episodes of one agent begin with its instructions."""
    packed = any(example.starts != (0,) for example in batch)
    if len(batch) < 2 or packed or not supports_prefix_sharing(model):
        return None
    tree = build_prefix_tree([example.ids for example in batch], max(len(example.ids) for example in batch))
    worthwhile = len(tree.tokens_U) <= 0.9 * sum(len(example.ids) for example in batch)
    return tree.to(next(model.parameters()).device) if worthwhile else None


def work_of(batch: Sequence[Example], shared: PrefixTree | None = None) -> Tokens:
    """Work of a batch; documents of a packed row do not attend to each other, and `shared` prefixes are computed once."""
    predicted = sum(weight > 0 for row in batch for weight in row.weights[1:])
    if shared is not None:
        return Tokens.of_prefixes([shared.positions_U], predicted)
    lengths = [
        end - start for row in batch for start, end in zip(row.starts, [*row.starts[1:], len(row.ids)], strict=True)
    ]
    return Tokens.of_rows(lengths, predicted)


def cut(batch: Sequence[Example], max_tokens: int) -> list[list[Example]]:
    """Split `batch` into parts of at most `max_tokens` padded tokens (0: no bound; a longer row is a part of its own)."""
    parts: list[list[Example]] = [[]]
    width = 0
    for example in batch:
        width = max(width, len(example.ids))
        if max_tokens and parts[-1] and width * (len(parts[-1]) + 1) > max_tokens:
            parts.append([])
            width = len(example.ids)
        parts[-1].append(example)
    return parts


def total_weight(batch: Sequence[Example]) -> float:
    return sum(weight for example in batch for weight in example.weights[1:])


def weighted_loss(
    model: PreTrainedModel,
    batch: Sequence[Example],
    *,
    total: float | None = None,
    lm_head_chunk_size: int = 0,
    precision: Precision = "bfloat16",
    shared: PrefixTree | None = None,
) -> tuple[Tensor, float | None]:
    """Weighted mean cross-entropy in nats, and the share of weighted tokens that are the model's first choice.

    `total` is what the sum is divided by in place of the weights of `batch`: those of all parts of a step. With
    `lm_head_chunk_size` no more logits than these exist at a time, and nobody looks for the first choice. `precision` is what
    products are computed in. `shared` is `common_prefixes` of the batch; its caller keeps `prefix_attention` until `backward`.
    """
    device = next(model.parameters()).device
    width = max(len(example.ids) for example in batch)
    tokens_BT = torch.tensor([example.ids + [PAD] * (width - len(example.ids)) for example in batch])
    weights_BT = torch.tensor([example.weights + [0.0] * (width - len(example.weights)) for example in batch])
    wanted_BT = functional.pad(weights_BT[:, 1:] > 0, (0, 1))
    targets_N = tokens_BT[:, 1:][wanted_BT[:, :-1]].to(device)
    weights_N = weights_BT[:, 1:][wanted_BT[:, :-1]].to(device)
    at_BT = positions(batch, width)
    head = model.get_output_embeddings()
    half = precision == "bfloat16"
    with torch.autocast(device.type, torch.bfloat16, enabled=half):
        if shared is not None:
            hidden_ND = hidden_states(model, shared)[shared.of_BT[wanted_BT.to(device)]]
        else:
            hidden_BTD = model.get_decoder()(
                input_ids=tokens_BT.to(device),
                position_ids=None if at_BT is None else at_BT.to(device),
                use_cache=False,
            ).last_hidden_state
            hidden_ND = hidden_BTD[wanted_BT.to(device)]
        if lm_head_chunk_size and isinstance(head, nn.Linear) and getattr(head, "bias", None) is None:
            losses_N, right_N = -_logprobs(hidden_ND, head.weight, targets_N, lm_head_chunk_size, half), None
        else:
            logits_NV = head(hidden_ND)
            losses_N = functional.cross_entropy(logits_NV.float(), targets_N, reduction="none")
            right_N = (logits_NV.argmax(-1) == targets_N).float()
    divisor = weights_N.sum() if total is None else total
    loss = (losses_N * weights_N).sum() / divisor
    return loss, None if right_N is None else float((right_N * weights_N).sum() / divisor)


def _logprobs(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, lm_head_chunk_size: int, half: bool) -> Tensor:
    given = (hidden_ND.bfloat16(), weight_VD.bfloat16()) if half else (hidden_ND, weight_VD)
    return chunked_scores(*given, targets_N, temperature=1.0, lm_head_chunk_size=lm_head_chunk_size)[0]


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


__all__ = ["Example", "SupervisedLearner", "batches", "cut", "positions", "total_weight", "weighted_loss"]
