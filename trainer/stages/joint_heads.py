"""A draft head that trains beside its policy, at each of the policy's optimiser steps.

The public reports say that MTP layers train jointly with the policy in long-context training and SFT, by self-distillation.
They do not say with which weight, on how many tokens, or whether the layers are updated during RL. Our choice: after each
step of the policy, the head trains on a bounded number of the tokens of that very step, with the hidden states and
distributions of the policy as it is then, detached. The policy computes the same bits with and without a head, and a
published version has a head that has learned from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from trainer.config import MTPConfig, OptimizerConfig
from trainer.inference.embedded.mtp_head import FILE, MultiToken
from trainer.inference.errors import UnsupportedModel
from trainer.inference.mtp.distil import Lesson, Teacher, windows
from trainer.learning.optimizers import learning_rate
from trainer.policy import Policy
from trainer.weights.tensors import DRAFT_HEAD

MOMENTS = ("exp_avg", "exp_avg_sq")
WEIGHT = "weight"


class JointHeads:
    """The head, its optimizer, and the policy that teaches it."""

    def __init__(
        self,
        policy: Policy,
        teacher: Teacher,
        config: MTPConfig,
        *,
        optimizer: OptimizerConfig,
        total_steps: int,
        seed: int,
    ) -> None:
        """Start from the policy's head if that has the configured size, else from a new one that predicts no change.

        `optimizer` and `total_steps` are the policy's: the head's learning rate warms up and falls as that of the policy.
        """
        self._model, self._teacher, self._config, self._seed = policy.model, teacher, config, seed
        self._rates = optimizer.model_copy(update={"learning_rate": config.learning_rate})
        self._total_steps = total_steps
        self.head = _existing(policy, teacher.hidden, config.hidden_size) or _fresh(teacher.hidden, config, seed)
        self.head = self.head.to(teacher.device)
        self._optimizer = torch.optim.AdamW(self.head.parameters(), lr=config.learning_rate, weight_decay=0.0)
        for parameter in self.head.parameters():  # at once, because checkpoints are loaded into this memory
            moments = {name: torch.zeros_like(parameter) for name in MOMENTS}
            self._optimizer.state[parameter] = {"step": torch.zeros(()), **moments}

    def train(self, texts: Iterable[Sequence[int]], *, step: int) -> dict[str, float]:
        """Train on at most `tokens_per_step` tokens of `texts`, which the policy's step `step` (from 1) trained on.

        Returns metrics of the head on each batch before it learned from it; none where the texts are too short.
        """
        batches = self._batches(texts, step)
        training = self._model.training
        self._model.eval()
        try:
            lessons = [(len(batch), self._learn(batch, step)) for batch in batches]
        finally:
            self._model.train(training)
        count = sum(size for size, _ in lessons)
        if not count:
            return {}
        return {
            "heads/loss": sum(size * lesson.loss for size, lesson in lessons) / count,
            "heads/accepted": sum(size * lesson.stood for size, lesson in lessons) / count,
        }

    def _batches(self, texts: Iterable[Sequence[int]], step: int) -> list[Tensor]:
        """Sequences [B, T] of the step, drawn from all of it; a resumed stage draws the same ones."""
        config = self._config
        whole = [token for text in texts for token in text]
        length = min(config.seq_len, config.tokens_per_step, len(whole))
        if length <= config.num_speculative_tokens:
            return []
        pieces = torch.tensor(windows([whole], length), device=self._teacher.device)
        draw = torch.Generator().manual_seed((self._seed * 1_000_003 + step) % 2**63)
        chosen = torch.randperm(len(pieces), generator=draw)[: config.tokens_per_step // length]
        return list(pieces[chosen.to(pieces.device)].split(config.batch_size))

    def _learn(self, tokens_BT: Tensor, step: int) -> Lesson:
        lesson = self._teacher.teach(self.head, tokens_BT, self._config.num_speculative_tokens, learn=True)
        finite = all(p.grad is None or bool(p.grad.isfinite().all()) for p in self.head.parameters())
        if finite:  # else the head stays as it is: it must not end a run
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate(self._rates, step, self._total_steps)
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return lesson

    def published(self) -> dict[str, Tensor]:
        """The head's tensors under the names that they have in published versions."""
        return {f"{DRAFT_HEAD}{name}": tensor.detach() for name, tensor in self.head.state_dict().items()}

    def beside(self, policy: Policy) -> Policy:
        """The policy with the files of this head, to be saved."""
        return replace(policy, heads=self.head.files())

    def state_tensors(self) -> dict[str, Tensor]:
        """All that the next step depends on, by name, where it is: loading writes into this memory."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.head.named_parameters():
            found[f"{DRAFT_HEAD}{name}|{WEIGHT}"] = parameter.detach()
            for key, value in self._optimizer.state[parameter].items():
                found[f"{DRAFT_HEAD}{name}|{key}"] = value
        return found

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `state_tensors()`. Without any (the checkpoint of a stage without a head) the head stays as it is.

        Raises ValueError when they are of a head of another size.
        """
        if not tensors:
            return
        for name, mine in self.state_tensors().items():
            given = tensors.get(name)
            if given is None or given.shape != mine.shape:
                raise ValueError(
                    f"its draft head has no {name} of shape {tuple(mine.shape)}; mtp.hidden_size was changed"
                )
            mine.copy_(given)


def joint_heads(
    policy: Policy,
    teacher: Teacher,
    config: MTPConfig,
    *,
    optimizer: OptimizerConfig,
    total_steps: int,
    seed: int,
) -> JointHeads | None:
    """None where no head trains at every step."""
    if not config.joint:
        return None
    return JointHeads(policy, teacher, config, optimizer=optimizer, total_steps=total_steps, seed=seed)


def of_head(name: str) -> bool:
    """Whether a tensor of a checkpoint is one of `JointHeads.state_tensors`."""
    return name.startswith(DRAFT_HEAD)


def apart(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A checkpoint's state without that of the head, and that of the head."""
    mine = {name: tensor for name, tensor in tensors.items() if of_head(name)}
    return {name: tensor for name, tensor in tensors.items() if name not in mine}, mine


def _existing(policy: Policy, hidden: int, width: int) -> MultiToken | None:
    """The policy's head, if it has one of this size."""
    if FILE not in policy.heads:
        return None
    try:
        head = MultiToken.read(policy.heads[FILE], hidden, where=f"the head of {policy.dir}")
    except UnsupportedModel:
        return None
    return head if len(head.mix.weight) == width else None


def _fresh(hidden: int, config: MTPConfig, seed: int) -> MultiToken:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MultiToken(hidden, config.hidden_size).eval()
