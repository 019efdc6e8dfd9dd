"""The RL stage on several ranks: the same steps, with outside communication on rank 0 only.

Every rank runs the loop of `trainer/rl/stage.py`. Rank 0 calls source and sink and broadcasts their answers, so all
ranks take the same branches.
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
from trainer.distributed.learner import ShardedBackend
from trainer.distributed.parallel_dims import Meshes
from trainer.distributed.publish import published_slices
from trainer.distributed.textual_feedback import learn_from_hints
from trainer.errors import StageError
from trainer.inference.mtp.distil import Teacher
from trainer.learning.importance_sampling import correction_of
from trainer.learning.step import Learner
from trainer.policy import Policy, published_dtype
from trainer.rl.backend import STAGE, Published
from trainer.rl.learner import build_adapters
from trainer.rl.reference import Reference
from trainer.stages.base import GroupSource, StageSink
from trainer.stages.joint_heads import joint_heads
from trainer.types import TrainGroup
from trainer.weights import RankPublisher, WeightStore
from trainer.weights.probe import ProbeText

T = TypeVar("T")


class ShardedRL:
    """`trainer.rl.backend.RLBackend` on one rank."""

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
        """Like the backend of one process. Raises CheckpointError, PolicyUnreadable, ParallelRefused, RouterUnknown."""
        self.config = config
        self.store = store
        self.meshes = meshes
        self.checkpoints = checkpoints
        self.sharded = ShardedCheckpoints(checkpoints, meshes)
        self.found = resumable(checkpoints, stage=STAGE, policy_dir=policy_dir, seed=seed, whole=False)
        # Adapters start from the same base again: a checkpoint's policy has them merged.
        from_checkpoint = self.found is not None and not config.lora.rank
        self.policy = load.load(self.found.policy_dir if self.found and from_checkpoint else policy_dir)
        adapters = None
        if config.lora.rank:
            with load.as_if_there(self.policy.model):
                adapters = build_adapters(self.policy.model, config, seed=seed)
        self.reference: Reference | None = None
        if config.objective.kl_coefficient > 0:
            self.reference = ShardedReference(meshes, load.model_of(policy_dir), config.objective, store)
        self.ranks = ShardedBackend(meshes, folder=self.policy.dir, reference_folder=policy_dir)
        self.learner = Learner(
            self.policy.model,
            objective=config.objective,
            correction=correction_of(config.objective),
            optimizer=config.optimizer,
            temperature=config.sampling.temperature,
            total_steps=config.steps,
            micro_batch_tokens=config.micro_batch_tokens,
            reference=self.reference.model if self.reference else None,
            adapters=adapters,
            enable_router_replay=config.sampling.enable_router_replay,
            backend=self.ranks,
        )
        self.publisher = RankPublisher(
            store.versions,
            meshes.rank,
            meshes.world,
            dtype=published_dtype(config.checkpoint, policy_dir),
            anchor_every=config.checkpoint.anchor_every,
            mode=config.checkpoint.codec,
        )
        self.heads = joint_heads(
            self.policy, self.teacher(), config.mtp, optimizer=config.optimizer, total_steps=config.steps, seed=seed
        )
        if self.found:
            self.sharded.load(self.found.path, self.learner, heads=self.heads)

    def learn_from_hints(self, groups: Sequence[TrainGroup]) -> dict[str, float]:
        return learn_from_hints(self.ranks.root, self.meshes, groups, self.config)

    def teacher(self) -> Teacher:
        return OnRanks(self.ranks.root, self.meshes)

    def publish(self, version: int, sink: StageSink, published: Published) -> None:
        """Publish within the step: rank 0's only connection to the run's process may be blocked waiting for a batch."""
        anchor = version % self.config.checkpoint.anchor_every == 0
        asked = ProbeText.of(self.policy.model, tokenizer=self.policy.tokenizer, dtype=self.store.format)
        probe = self.ranks.probe(asked)
        parts = published_slices(self.policy.model, self.meshes, self.learner.published_state())
        if self.heads and self.meshes.rank == 0:  # every rank has the whole of it
            parts |= self.heads.published()
        published(self.publisher.publish(version, parts, anchor=anchor, probe=probe), None)
        if self.meshes.rank == 0:
            self.store.collect(keep=self.config.checkpoint.keep_versions)
        self._report(sink, self.sharded.finished())

    def wait(self) -> None:
        """Nothing is published beside training."""

    def check(self) -> None:
        """Nothing is published beside training."""

    def end(self) -> None:
        """Nothing is published beside training."""

    def save(self, policy: Policy, state: CheckpointState, sink: StageSink, *, final: bool) -> Path:
        """Start a checkpoint of the current step and report the previous one. The final checkpoint is awaited."""
        self._report(sink, self.sharded.wait())
        self.sharded.save(policy, self.learner, state, heads=self.heads)
        if self.reference is not None:
            self.reference.saved()
        if final or sink.should_stop():
            self._report(sink, self.sharded.wait(), final=final)
        return self.checkpoints.root / f"step-{state.step:06d}"

    def _report(self, sink: StageSink, path: Path | None, *, final: bool = False) -> None:
        if path is not None:
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
