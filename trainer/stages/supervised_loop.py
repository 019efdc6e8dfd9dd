"""The loop that mid-training and SFT share: batch, step, checkpoint, metrics; resumable to the same bits.

Data are seeded iterators, so a resumed stage draws and drops what it had consumed and goes on with the next batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from trainer import policy as policies
from trainer.checkpoint.resume import resumable, unfit
from trainer.checkpoint.store import Checkpoint, CheckpointState, CheckpointStore
from trainer.config import MidtrainConfig, SFTConfig
from trainer.inference.mtp.distil import Here
from trainer.learning.activation_checkpointing import apply_activation_checkpointing, compile_each
from trainer.learning.step import NonFiniteGradients
from trainer.learning.supervised import Example, SupervisedLearner, batches
from trainer.policy import Policy
from trainer.stages.base import StageResult, StageSink
from trainer.stages.device import device_of, placed
from trainer.stages.draft_heads import check_heads, with_head
from trainer.stages.held_out import HeldOut
from trainer.stages.joint_heads import JointHeads, apart, joint_heads

HELD_OUT_EVERY = 10
HELD_OUT_EXAMPLES = 24
HELD_OUT_BATCHES = 4
"""Held-out rows have the tokens of at most so many steps: measuring them takes about as long as one step or two."""


@dataclass(frozen=True, slots=True)
class Later:
    """Other data from a step on: what to do before the first of them, and the data."""

    after: int
    """Steps before it."""
    begin: Callable[[], None]
    """Idempotent: a resumed stage does it again."""
    examples: Iterator[Example]


class Trainee(Protocol):
    """A policy that learns: in this process (`Alone`), or together with other ranks (`trainer/distributed`)."""

    heads: JointHeads | None
    """The draft head that trains at every step; checkpoints have it."""

    def train(self, batch: Sequence[Example], *, step: int) -> dict[str, float]:
        """One optimiser step (counted from 1); returns its metrics. Raises NonFiniteGradients."""
        ...

    def loss(self, rows: Sequence[Example]) -> float:
        """Weighted next-token loss in nats, without training on it."""
        ...

    def teach_heads(self, texts: Iterable[Sequence[int]], *, seed: int) -> dict[str, float]:
        """Train a draft head; the next checkpoint has it. Raises StageError."""
        ...

    def save(self, state: CheckpointState) -> Path:
        """A complete checkpoint. Raises CheckpointError."""
        ...

    def resume(self, found: Checkpoint) -> None:
        """Everything beside the weights as it was then. Raises CheckpointError."""
        ...


LoadPolicy = Callable[[Path], Policy]
"""`policies.load`, or what goes with another trainee."""


class TraineeOf(Protocol):
    def __call__(
        self, policy: Policy, config: MidtrainConfig | SFTConfig, checkpoints: CheckpointStore, *, seed: int
    ) -> Trainee: ...


class Alone:
    """The policy in this process."""

    def __init__(
        self, policy: Policy, config: MidtrainConfig | SFTConfig, checkpoints: CheckpointStore, *, seed: int
    ) -> None:
        """Moves the policy to where the run computes. Raises StageError when there is no such device."""
        config = placed(config)
        self._policy, self._config, self._checkpoints = policy, config, checkpoints
        policy.model.to(device_of(config.parallel))  # type: ignore[arg-type] # transformers' own
        if config.parallel.activation_checkpointing:
            apply_activation_checkpointing(policy.model)
        if config.parallel.compile:
            compile_each(policy.model)
        self._learner = SupervisedLearner(
            policy.model,
            optimizer=config.optimizer,
            total_steps=config.steps,
            micro_batch_tokens=config.micro_batch_tokens,
            lm_head_chunk_size=config.parallel.lm_head_chunk_size,
            precision=config.parallel.compute_format,
        )
        self.heads = joint_heads(
            policy, self._teacher(), config.mtp, optimizer=config.optimizer, total_steps=config.steps, seed=seed
        )

    def _teacher(self) -> Here:
        return Here(self._policy.model, half=self._config.parallel.precision == "bfloat16")

    def train(self, batch: Sequence[Example], *, step: int) -> dict[str, float]:
        return self._learner.train(batch, step=step)

    def loss(self, rows: Sequence[Example]) -> float:
        return self._learner.loss(rows)

    def teach_heads(self, texts: Iterable[Sequence[int]], *, seed: int) -> dict[str, float]:
        self._policy, found = with_head(self._policy, self._teacher(), texts, self._config.mtp, seed=seed)
        return found

    def save(self, state: CheckpointState) -> Path:
        tensors = self._learner.optimizer.state_tensors()
        if self.heads is None:
            return self._checkpoints.save(self._policy, tensors, state)
        return self._checkpoints.save(self.heads.beside(self._policy), tensors | self.heads.state_tensors(), state)

    def resume(self, found: Checkpoint) -> None:
        optimizer, of_heads = apart(found.optimizer)
        try:
            self._learner.optimizer.load_state_tensors(optimizer)
            if self.heads is not None:
                self.heads.load_state_tensors(of_heads)
        except ValueError as error:
            raise unfit(found.path, error) from error


def latest_policy(
    checkpoints: CheckpointStore,
    stage: str,
    policy_dir: Path,
    *,
    seed: int,
    whole: bool = True,
    load: LoadPolicy = policies.load,
) -> tuple[Policy, Checkpoint | None]:
    """The policy to continue: of the newest checkpoint of `stage`, else of `policy_dir`. `whole` as of `CheckpointStore`.

    Raises CheckpointError, PolicyUnreadable.
    """
    found = resumable(checkpoints, stage=stage, policy_dir=policy_dir, seed=seed, whole=whole)
    return load(found.policy_dir if found else policy_dir), found


def run_supervised(
    *,
    stage: str,
    policy: Policy,
    resumed: Checkpoint | None,
    config: MidtrainConfig | SFTConfig,
    seed: int,
    examples: Iterator[Example],
    held_out: Sequence[Example] | HeldOut,
    sink: StageSink,
    checkpoints: CheckpointStore,
    later: Later | None = None,
    measured: HeldOut | None = None,
    trainee_of: TraineeOf = Alone,
) -> StageResult:
    """Train `policy` on `examples` for the configured steps, or until asked to stop. Raises StageError, NonFiniteGradients.

    `held_out` is measured now and then: rows, or rows by name. With it are those of `measured`.
    """
    check_heads(policy.model, config.mtp)
    trainee = trainee_of(policy, config, checkpoints, seed=seed)
    stream = batches(examples, batch_tokens=config.batch_tokens, seed=seed)
    step, last = 0, None
    turn = later.after if later else config.steps
    if resumed is not None:
        step, last = resumed.state.step, resumed.path
        trainee.resume(resumed)
        for _ in range(min(step, turn)):
            next(stream)
        sink.event("info", f"resumed from the checkpoint of step {step}")

    def save(*, final: bool) -> Path:
        state = CheckpointState(stage=stage, step=step, version=step, seed=seed)
        path = trainee.save(state)
        sink.checkpoint_saved(step, path, final=final)
        return path

    sink.progress(step, config.steps)
    began_later = False
    if not isinstance(held_out, HeldOut):
        held_out = _within(held_out, HELD_OUT_BATCHES * config.batch_tokens)
    any_held_out = bool(held_out.rows if isinstance(held_out, HeldOut) else held_out)
    while step < config.steps:
        if sink.should_stop():
            return StageResult("stopped", step, save(final=False) if step else None)
        if later is not None and step >= turn and not began_later:
            later.begin()
            stream = batches(later.examples, batch_tokens=config.batch_tokens, seed=seed + 1)
            for _ in range(step - turn):
                next(stream)
            began_later = True
        began = time.perf_counter()
        batch = next(stream)
        try:
            values = trainee.train(batch, step=step + 1)
        except NonFiniteGradients as error:
            sink.event("error", str(error))
            raise
        step += 1
        trained = time.perf_counter() - began
        values |= {"time/train": trained, "speed/train_tokens": values["tokens/trained"] / trained}
        if any_held_out and (step == 1 or step % HELD_OUT_EVERY == 0 or step == config.steps):
            if isinstance(held_out, HeldOut):
                values |= held_out.losses(trainee.loss)
            else:
                values["loss/heldout"] = trainee.loss(held_out)
            if measured is not None:
                values |= measured.losses(trainee.loss)
        final = step == config.steps
        if trainee.heads is not None or (final and config.mtp.at_end):
            taught = time.perf_counter()
            if trainee.heads is not None:
                values |= trainee.heads.train((row.ids for row in batch), step=step)
            else:
                values |= trainee.teach_heads((row.ids for rows in stream for row in rows), seed=seed)
            values["time/heads"] = time.perf_counter() - taught
        values["time/step"] = time.perf_counter() - began
        sink.metrics(step, values)  # before the checkpoint: who resumes from it does not repeat this step
        if final or step % config.checkpoint.every_steps == 0:
            last = save(final=final)
        sink.progress(step, config.steps)
    return StageResult("completed", step, last)


def _within(rows: Sequence[Example], max_tokens: int) -> Sequence[Example]:
    """The first rows of at most so many tokens, and never none of them."""
    ends = accumulate(len(row.ids) for row in rows)
    return rows[: max(1, sum(end <= max_tokens for end in ends))]
