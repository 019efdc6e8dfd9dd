"""Where an RL stage's policy lives: in this process, or sharded over ranks.

The stage (`stage.py`) is the algorithm and its bookkeeping; a backend loads, publishes and saves the policy. The one for many
ranks is in `trainer/distributed/rl.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from trainer import policy as policies
from trainer.checkpoint.resume import resumable, unfit
from trainer.checkpoint.store import Checkpoint, CheckpointState, CheckpointStore
from trainer.config import RLConfig
from trainer.inference.mtp.distil import Here, Teacher
from trainer.learning.distillation import learn_from_hints
from trainer.learning.step import Learner
from trainer.policy import Policy
from trainer.rl.learner import build_learner, build_reference
from trainer.rl.reference import Reference
from trainer.stages.base import StageSink
from trainer.stages.device import placed
from trainer.stages.joint_heads import JointHeads, apart, joint_heads
from trainer.types import TrainGroup
from trainer.weights import Manifest, WeightStore
from trainer.weights.async_publish import Background
from trainer.weights.probe import Probe, measure_model
from trainer.weights.tensors import Frozen

STAGE = "rl"

Published = Callable[[Manifest, float | None], None]
"""Called with a version that the store now holds, and the seconds of its background publication, if it had one."""


class RLBackend(Protocol):
    policy: Policy
    """The starting policy, whose model the learner trains."""
    reference: Reference | None
    learner: Learner
    found: Checkpoint | None
    """The checkpoint that was resumed."""
    heads: JointHeads | None
    """The draft head that trains at every step; versions and checkpoints have it."""

    def learn_from_hints(self, groups: Sequence[TrainGroup]) -> dict[str, float]:
        """Accumulate textual-feedback gradients for the next optimiser step; return metrics."""
        ...

    def teacher(self) -> Teacher:
        """The policy as the teacher of draft heads."""
        ...

    def publish(self, version: int, sink: StageSink, published: Published) -> None:
        """Publish the current weights (a no-op in the store when a replay gives the same bytes), perhaps beside training.

        Raises WeightError, and what `published` raises, of this publication or of an earlier one.
        """
        ...

    def wait(self) -> None:
        """Wait until what was published is in the store. Raises the errors of `publish`."""
        ...

    def check(self) -> None:
        """Raise the error of a publication that has failed. Does not wait."""
        ...

    def end(self) -> None:
        """Let a publication finish before the process ends."""
        ...

    def save(self, policy: Policy, state: CheckpointState, sink: StageSink, *, final: bool) -> Path:
        """Checkpoint the current step and report to the sink, at once or when it is complete. Raises CheckpointError."""
        ...


class SingleProcess:
    """The policy in this process. A thread encodes, writes and announces each version beside training."""

    def __init__(
        self, *, policy_dir: Path, config: RLConfig, seed: int, store: WeightStore, checkpoints: CheckpointStore
    ) -> None:
        """Start from `policy_dir`, or from the newest checkpoint if any. Raises CheckpointError, PolicyUnreadable."""
        self.config = config = placed(config)
        self.store = store
        self.checkpoints = checkpoints
        self.publishing = Background("publishing")
        self.found = resumable(checkpoints, stage=STAGE, policy_dir=policy_dir, seed=seed)
        # Adapters start from the same base again: a checkpoint's policy has them merged.
        from_checkpoint = self.found is not None and not config.lora.rank
        self.policy = policies.load(self.found.policy_dir if self.found and from_checkpoint else policy_dir)
        self.reference = build_reference(config, policy_dir, store)
        self.learner = build_learner(self.policy, config, seed=seed, reference=self.reference, published=store.format)
        self.heads = joint_heads(
            self.policy, self.teacher(), config.mtp, optimizer=config.optimizer, total_steps=config.steps, seed=seed
        )
        if self.found:
            state, of_heads = apart(self.found.optimizer)
            try:
                self.learner.load_state_tensors(state)
                if self.heads:
                    self.heads.load_state_tensors(of_heads)
            except ValueError as error:
                raise unfit(self.found.path, error) from error

    def learn_from_hints(self, groups: Sequence[TrainGroup]) -> dict[str, float]:
        return learn_from_hints(self.learner.model, groups, self.config)

    def teacher(self) -> Teacher:
        return Here(self.learner.model, half=self.config.parallel.precision == "bfloat16")

    def publish(self, version: int, sink: StageSink, published: Published) -> None:
        probe = measure_model(self.learner.model, tokenizer=self.policy.tokenizer, dtype=self.store.format)
        self.publishing.wait()  # before the copy: there are never three
        frozen = self.store.freeze(self.learner.weights() | (self.heads.published() if self.heads else {}))
        self.publishing.begin(partial(self._write, version, frozen, probe, published))

    def _write(self, version: int, frozen: Frozen, probe: Probe, published: Published) -> None:
        """Runs in a thread beside training, which changes weights and step meanwhile."""
        began = time.perf_counter()
        anchor = version % self.config.checkpoint.anchor_every == 0
        manifest = self.store.write(version, frozen, anchor=anchor, probe=probe)
        published(manifest, time.perf_counter() - began)
        self.store.collect(keep=self.config.checkpoint.keep_versions)

    def wait(self) -> None:
        self.publishing.wait()

    def check(self) -> None:
        self.publishing.check()

    def end(self) -> None:
        self.publishing.end()

    def save(self, policy: Policy, state: CheckpointState, sink: StageSink, *, final: bool) -> Path:
        """Saves once the step's version is in the store."""
        self.publishing.wait()
        path = self.checkpoints.save(
            self.heads.beside(policy) if self.heads else policy,
            self.learner.state_tensors() | (self.heads.state_tensors() if self.heads else {}),
            state,
            weights=self.learner.weights(),
            dtype=torch.bfloat16 if self.learner.master else None,  # they are rounded already
        )
        if self.reference is not None:
            self.reference.saved()
        sink.checkpoint_saved(state.step, path, final=final)
        return path
