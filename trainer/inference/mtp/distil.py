"""Self-distillation of the draft head. The targets are the frozen policy's distributions over tokens it wrote and read.

Shape suffixes: B sequences, T their length, C the policy's width, V its vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.inference.embedded.mtp_head import MultiToken

MEASURED = 10
"""One window in this many is held out for measurement."""


@dataclass(frozen=True)
class Distillation:
    """Training settings of the draft head."""

    ahead: int = 3
    """Draft tokens that the head learns to predict beyond the policy's own next token."""
    width: int = 256
    steps: int = 400
    batch: int = 8
    """Sequences per step."""
    learning_rate: float = 3e-3
    seed: int = 0


class Lesson(NamedTuple):
    """Means over a batch of sequences."""

    loss: float
    """KL(policy ‖ head), nats per token."""
    stood: float
    """Top-1 acceptance rate of consecutive draft tokens."""


class Teacher(Protocol):
    """The frozen policy that a draft head learns from: in this process (`Here`) or sharded
    (`distributed/draft_heads.py`)."""

    hidden: int
    device: torch.device

    def teach(self, head: MultiToken, tokens_BT: Tensor, ahead: int, *, learn: bool) -> Lesson:
        """Compute the `Lesson` of a batch; `learn` adds the loss' gradients to `head`."""
        ...


class Here:
    """The whole policy, in this process."""

    def __init__(self, model: PreTrainedModel, *, half: bool = False) -> None:
        """`half` computes in bfloat16."""
        self.model, self.half = model, half
        self.hidden = int(model.config.hidden_size)
        self.device = next(model.parameters()).device

    def teach(self, head: MultiToken, tokens_BT: Tensor, ahead: int, *, learn: bool) -> Lesson:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            with torch.no_grad():
                hidden_BTC = self.model.get_decoder()(input_ids=tokens_BT, use_cache=False).last_hidden_state
            sums, gradients = study(self.model, head, hidden_BTC, tokens_BT, ahead, learn=learn)
        return lesson(head, sums, gradients, len(tokens_BT))


def study(
    model: PreTrainedModel, head: MultiToken, hidden_BTC: Tensor, tokens_BT: Tensor, ahead: int, *, learn: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return the sums over sequences of the fields of `Lesson`, [2], and the gradients of the first with respect to
    `head`.

    Loss: KL(policy at t + k ‖ head k tokens ahead of t), mean over positions and k.
    """
    output = cast(nn.Linear, model.get_output_embeddings())
    kind = cast(Any, output.weight).dtype
    with torch.no_grad():
        wanted_BTV = torch.log_softmax(output(hidden_BTC.to(kind)).float(), -1)
        first_BT = wanted_BTV.argmax(-1)
        embedded_BTC = model.get_input_embeddings()(tokens_BT).float()
    losses, stood = [], []
    state_BTC, right_BT = hidden_BTC.float(), torch.ones_like(tokens_BT, dtype=torch.bool)
    with torch.set_grad_enabled(learn):
        for k in range(1, ahead + 1):
            state_BTC = head(state_BTC[:, :-1], embedded_BTC[:, k:])
            drafted_BTV = torch.log_softmax(output(state_BTC.to(kind)).float(), -1)
            kl_BT = (wanted_BTV[:, k:].exp() * (wanted_BTV[:, k:] - drafted_BTV)).sum(-1)
            losses.append(kl_BT.mean(1).sum())
            right_BT = right_BT[:, :-1] & (drafted_BTV.argmax(-1) == first_BT[:, k:])
            stood.append(right_BT.float().mean(1).sum())
        loss = torch.stack(losses).mean()
    gradients = list(torch.autograd.grad(loss, list(head.parameters()))) if learn else []
    return torch.stack([loss.detach(), torch.stack(stood).mean()]), gradients


def lesson(head: MultiToken, sums: Tensor, gradients: Sequence[Tensor], count: int) -> Lesson:
    """`Lesson` of `count` sequences; assigns the gradients, if any, to `head`."""
    for parameter, gradient in zip(head.parameters(), gradients, strict=bool(gradients)):
        parameter.grad = gradient / count
    loss, stood = (sums / count).tolist()
    return Lesson(loss, stood)


def distil(teacher: Teacher, sequences: Sequence[Sequence[int]], how: Distillation) -> tuple[MultiToken, float]:
    """Train a head; return it with the mean KL (nats per token) over the last tenth of steps. `sequences` have one
    length."""
    tokens_ST = torch.tensor([list(sequence) for sequence in sequences])
    generator = torch.Generator().manual_seed(how.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(how.seed)
        head = MultiToken(teacher.hidden, how.width).to(teacher.device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=how.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.steps)
    losses: list[float] = []
    for _ in range(how.steps):
        chosen = torch.randint(len(tokens_ST), (how.batch,), generator=generator)
        losses.append(teacher.teach(head, tokens_ST[chosen].to(teacher.device), how.ahead, learn=True).loss)
        optimizer.step()
        schedule.step()
    last = losses[-max(1, how.steps // 10) :]
    return head.eval(), sum(last) / len(last)


def measure(teacher: Teacher, head: MultiToken, sequences: Sequence[Sequence[int]], how: Distillation) -> Lesson:
    """Evaluate `head` on held-out sequences, `how.batch` of them at a time."""
    tokens_ST = torch.tensor([list(sequence) for sequence in sequences], device=teacher.device)
    loss = stood = 0.0
    for tokens_BT in tokens_ST.split(how.batch):
        found = teacher.teach(head, tokens_BT, how.ahead, learn=False)
        loss, stood = loss + found.loss * len(tokens_BT), stood + found.stood * len(tokens_BT)
    return Lesson(loss / len(tokens_ST), stood / len(tokens_ST))


def windows(sequences: Iterable[Sequence[int]], length: int) -> list[list[int]]:
    """Concatenate sequences and cut them to `length`. Raises ValueError when they do not fill one window."""
    whole = [token for sequence in sequences for token in sequence]
    if len(whole) < length:
        raise ValueError(f"{len(whole)} tokens do not fill a window of {length}; give more, or make it shorter")
    return [whole[at : at + length] for at in range(0, len(whole) - length + 1, length)]
