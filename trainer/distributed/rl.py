"""The RL stage on several ranks: the same steps, with outside communication on rank 0 only.

Every rank runs the loop of `trainer/rl/stage.py`. Rank 0 calls source and sink and broadcasts their answers, so all
ranks take
the same branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from transformers import PreTrainedModel

from trainer.checkpoint.resume import resumable
from trainer.checkpoint.store import CheckpointState, CheckpointStore
from trainer.config import ObjectiveConfig, RLConfig
from trainer.distributed import load
from trainer.distributed.checkpoint import ShardedCheckpoints
from trainer.distributed.draft_heads import OnRanks
from trainer.distributed.learner import ShardedLearner
from trainer.distributed.parallel_dims import Meshes
from trainer.distributed.publish import published
from trainer.distributed.textual_feedback import learn_from_hints
from trainer.errors import StageError
from trainer.inference.mtp.distil import Teacher
from trainer.learning.importance_sampling import correction_of
from trainer.policy import published_dtype
from trainer.rl.learner import build_adapters
from trainer.rl.reference import Reference
from trainer.rl.stage import STAGE, RLStage
from trainer.stages.base import GroupSource, StageSink
from trainer.stages.draft_heads import check_heads
from trainer.types import TrainGroup
from trainer.weights import RankPublisher, WeightStore

T = TypeVar("T")


class ShardedRLStage(RLStage):
    """State of an RL run on one rank."""

    def __init__(
        self,
        meshes: Meshes,
        *,
        policy_dir: Path,
        config: RLConfig,
        seed: int,
        store: WeightStore,
        checkpoints: CheckpointStore,
    ) -> None:
        """Like the stage on one process. Raises CheckpointError, PolicyUnreadable, ParallelRefused, RouterUnknown."""
        self.config = config
        self.seed = seed
        self.store = store
        self.meshes = meshes
        self.checkpoints = checkpoints
        self.sharded = ShardedCheckpoints(checkpoints, meshes)
        found = resumable(checkpoints, stage=STAGE, policy_dir=policy_dir, seed=seed, whole=False)
        # Adapters start from the same base again: a checkpoint's policy has them merged.
        from_checkpoint = found is not None and not config.lora.rank
        self.policy = load.load(found.policy_dir if found and from_checkpoint else policy_dir)
        adapters = None
        if config.lora.rank:
            with load.as_if_there(self.policy.model):
                adapters = build_adapters(self.policy.model, config, seed=seed)
        self.reference = None
        if config.objective.kl_coefficient > 0:
            self.reference = ShardedReference(meshes, load.model_of(policy_dir), config.objective, store)
        self.learner: ShardedLearner = ShardedLearner(
            self.policy.model,
            meshes,
            objective=config.objective,
            correction=correction_of(config.objective),
            optimizer=config.optimizer,
            temperature=config.sampling.temperature,
            total_steps=config.steps,
            micro_batch_tokens=config.micro_batch_tokens,
            reference=self.reference.model if self.reference else None,
            adapters=adapters,
            enable_router_replay=config.sampling.enable_router_replay,
            folder=self.policy.dir,
            reference_folder=policy_dir,
        )
        self.publisher = RankPublisher(
            store.versions,
            meshes.rank,
            meshes.world,
            dtype=published_dtype(config.checkpoint, policy_dir),
            anchor_every=config.checkpoint.anchor_every,
            mode=config.checkpoint.codec,
        )
        check_heads(self.policy.model, config.mtp)
        self._resume(found)
        if found:
            self.sharded.load(found.path, self.learner)

    def publish(self, sink: StageSink) -> None:
        """Publish within the step: rank 0's only connection to the run's process may be blocked waiting for a batch."""
        anchor = self.step % self.config.checkpoint.anchor_every == 0
        probe = self.learner.probe()
        parts = published(self.policy.model, self.meshes, self.learner.plain_state())
        manifest = self.publisher.publish(self.step, parts, anchor=anchor, probe=probe)
        sink.version_published(self.step, manifest.digest, self._figures(manifest))
        if self.meshes.rank == 0:
            self.store.collect(keep=self.config.checkpoint.keep_versions)
        self._tell(sink, self.sharded.finished())

    def learn_from_hints(self, groups: Sequence[TrainGroup]) -> dict[str, float]:
        return learn_from_hints(self.learner.root, self.meshes, groups, self.config)

    def _teacher(self) -> Teacher:
        return OnRanks(self.learner.root, self.meshes)

    def save(self, sink: StageSink, *, final: bool = False) -> Path:
        """Start a checkpoint of the current step and report the previous one. The final checkpoint is awaited."""
        self._tell(sink, self.sharded.wait())
        state = CheckpointState(
            stage=STAGE,
            step=self.step,
            version=self.step,
            seed=self.seed,
            consumed_prompts=self.consumed,
            skipped_steps=self.skipped,
        )
        self.sharded.save(self.policy, self.learner, state)
        if self.reference is not None:
            self.reference.saved()
        if final or sink.should_stop():
            self._tell(sink, self.sharded.wait(), final=final)
        return self.checkpoints.root / f"step-{self.step:06d}"

    def _tell(self, sink: StageSink, path: Path | None, *, final: bool = False) -> None:
        if path is not None:
            self.checkpoint = path
            sink.checkpoint_saved(int(path.name.removeprefix("step-")), path, final=final)


class ShardedReference(Reference):
    """A reference that is sharded like the policy. Every rank reads its own part of each version."""

    def __init__(self, meshes: Meshes, model: PreTrainedModel, objective: ObjectiveConfig, store: WeightStore) -> None:
        super().__init__(model, objective, store)
        self._meshes = meshes

    def _become(self, version: int) -> None:
        load.follow(self.model, self.store, version)

    def _pin(self, name: str, version: int) -> None:
        if self._meshes.rank == 0:
            self.store.pin(name, version)


class OfFirst:
    """Broadcasts answers and errors of rank 0's source and sink to all ranks."""

    def __init__(self, meshes: Meshes, source: GroupSource | None, sink: StageSink | None) -> None:
        """`source` and `sink` are set on rank 0 only."""
        self.meshes = meshes
        self._source, self._sink = source, sink

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        source = self._source
        return self._asked(lambda: source.next_batch(step, timeout=timeout) if source else [])

    def flow(self) -> Mapping[str, float]:
        return self._source.flow() if self._source else {}

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if self._sink:
            several = {"distributed/ranks": float(self.meshes.world)} if self.meshes.config.max_nodes > 1 else {}
            self._sink.metrics(step, {**values, **several})

    def progress(self, done: int, total: int) -> None:
        if self._sink:
            self._sink.progress(done, total)

    def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
        if self._sink:
            self._sink.version_published(version, digest, values)

    def checkpoint_saved(self, step: int, path: Path, *, final: bool) -> None:
        if self._sink:
            self._sink.checkpoint_saved(step, path, final=final)

    def event(
        self, level: Literal["info", "warning", "error"], message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        if self._sink:
            self._sink.event(level, message, data)

    def should_stop(self) -> bool:
        sink = self._sink
        return self._asked(lambda: sink.should_stop() if sink else False)

    def _asked(self, ask: Callable[[], T]) -> T:
        answer: tuple[T | None, StageError | None] = None, None
        if self.meshes.rank == 0:
            try:
                answer = ask(), None
            except StageError as error:
                answer = None, error
        value, failed = self.meshes.from_first(answer)
        if failed is not None:
            raise failed
        return value
