"""Draft-head training, the last thing that a stage does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from transformers import PreTrainedModel

from trainer.config import MTPConfig
from trainer.errors import StageError
from trainer.inference.embedded.factory import shape_of
from trainer.inference.errors import UnsupportedModel
from trainer.inference.mtp.distil import MEASURED, Distillation, Teacher, distil, measure, windows
from trainer.policy import Policy
from trainer.stages.base import GroupSource


def check_heads(model: PreTrainedModel, config: MTPConfig) -> None:
    """Before anything is trained. Raises StageError for a policy for which no engine drafts tokens."""
    if not config.num_speculative_tokens:
        return
    try:
        shape_of(model.config.to_dict())
    except UnsupportedModel as error:
        raise StageError(
            f"mtp.num_speculative_tokens={config.num_speculative_tokens}: the embedded engine, which alone "
            "drafts tokens, does not compute "
            f"{type(model).__name__}: {error}; set it to 0"
        ) from error


def with_head(
    policy: Policy, teacher: Teacher, texts: Iterable[Sequence[int]], config: MTPConfig, *, seed: int
) -> tuple[Policy, dict[str, float]]:
    """The policy with a head that was trained for it as it is now, and how good that is on texts it has not learned from.

    Raises StageError when there is too little text.
    """
    try:
        pieces = windows(_first(texts, config.train_tokens), config.seq_len)
    except ValueError as error:
        raise StageError(f"mtp.seq_len: {error}") from error
    learned, unseen = [piece for n, piece in enumerate(pieces) if n % MEASURED], pieces[::MEASURED]
    if not learned:
        raise StageError(
            f"mtp.seq_len={config.seq_len}: the stage's texts fill one piece, and two are needed; make the window shorter"
        )
    how = Distillation(
        ahead=config.num_speculative_tokens, width=config.hidden_size, steps=config.steps, batch=config.batch_size,
        learning_rate=config.learning_rate, seed=seed,
    )  # fmt: skip
    training = policy.model.training
    policy.model.eval()
    head, _ = distil(teacher, learned, how)
    found = measure(teacher, head, unseen, how)
    policy.model.train(training)
    return replace(policy, heads=head.files()), {"heads/loss": found.loss, "heads/accepted": found.stood}


def of_rollouts(source: GroupSource, last: int, *, timeout: float) -> Iterator[list[int]]:
    """What was read and said in the rollouts of step `last`, and of the steps before it, newest first.

    Their batches are recorded, so that a resumed stage learns from the same ones.
    """
    for step in range(last, 0, -1):
        for group in source.next_batch(step, timeout=timeout):
            yield from (sample.tokens for sample in group.samples)


def _first(texts: Iterable[Sequence[int]], max_tokens: int) -> Iterator[Sequence[int]]:
    """As many as it takes to have `max_tokens` tokens, the last one cut."""
    for text in texts:
        yield text[:max_tokens]
        max_tokens -= len(text)
        if max_tokens <= 0:
            return
