"""Mid-training and SFT on several ranks: every rank runs the stage's loop on the same batches and trains its rows of
them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from trainer.checkpoint.store import Checkpoint, CheckpointState, CheckpointStore
from trainer.config import MidtrainConfig, SFTConfig
from trainer.distributed.checkpoint import ShardedCheckpoints
from trainer.distributed.draft_heads import OnRanks
from trainer.distributed.parallel_dims import Meshes
from trainer.distributed.supervised_step import ShardedSupervisedLearner
from trainer.learning.supervised import Example
from trainer.policy import Policy
from trainer.stages.draft_heads import with_head
from trainer.stages.joint_heads import joint_heads


class ShardedTrainee:
    """`trainer.stages.supervised_loop.Alone` on ranks. Shards the policy in place; all ranks make every call together."""

    def __init__(
        self,
        meshes: Meshes,
        policy: Policy,
        config: MidtrainConfig | SFTConfig,
        checkpoints: CheckpointStore,
        *,
        seed: int,
    ) -> None:
        """Shard the policy. Raises ParallelRefused, PolicyUnreadable."""
        self._policy, self._config = policy, config
        self._root = checkpoints.root
        self._learner = ShardedSupervisedLearner(
            policy.model,
            meshes,
            optimizer=config.optimizer,
            total_steps=config.steps,
            micro_batch_tokens=config.micro_batch_tokens,
            folder=policy.dir,
        )
        self._checkpoints = ShardedCheckpoints(checkpoints, meshes)
        self.heads = joint_heads(
            policy, self._teacher(), config.mtp, optimizer=config.optimizer, total_steps=config.steps, seed=seed
        )

    def _teacher(self) -> OnRanks:
        return OnRanks(self._learner.root, self._learner.meshes)

    def train(self, batch: Sequence[Example], *, step: int) -> dict[str, float]:
        return self._learner.train(batch, step=step)

    def loss(self, rows: Sequence[Example]) -> float:
        return self._learner.loss(rows)

    def teach_heads(self, texts: Iterable[Sequence[int]], *, seed: int) -> dict[str, float]:
        self._policy, found = with_head(self._policy, self._teacher(), texts, self._config.mtp, seed=seed)
        return found

    def save(self, state: CheckpointState) -> Path:
        self._checkpoints.save(self._policy, self._learner, state, heads=self.heads)
        self._checkpoints.wait()
        return self._root / f"step-{state.step:06d}"

    def resume(self, found: Checkpoint) -> None:
        self._checkpoints.load(found.path, self._learner, heads=self.heads)
