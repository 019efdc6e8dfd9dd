"""Checkpoints of a sharded run. All ranks write at once while training continues; any number of ranks can read them.

    step-000020/
      policy/      Hugging Face layout, as in every checkpoint
      shards/      torch.distributed.checkpoint: weights and optimizer state, sharded as the ranks were
      state.json   as in every checkpoint, written last

A checkpoint has a temporary name until all of it is on disk, so a run killed at any moment still has the previous one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Protocol, cast

from safetensors.torch import load_file
from torch import Tensor, distributed
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import StorageWriter
from transformers import PreTrainedModel

from trainer import policy as policies
from trainer.checkpoint.layout import OPTIMIZER_FILE, POLICY_DIR, SHARDS
from trainer.checkpoint.resume import unfit
from trainer.checkpoint.sharded import FAILURES, OPTIMIZER, optimizer_entries
from trainer.checkpoint.store import CheckpointError, CheckpointState, CheckpointStore
from trainer.distributed import policy_files
from trainer.distributed.fsdp import scatter_state
from trainer.distributed.parallel_dims import PATIENCE, Meshes
from trainer.stages.joint_heads import JointHeads, apart, of_head

WEIGHTS = "policy"


class Trained(Protocol):
    """What learns: a `Learner` with a `ShardedBackend`, or a `ShardedSupervisedLearner`."""

    model: PreTrainedModel

    def published_state(self) -> dict[str, Tensor]:
        """Weights to save, sharded as on this rank."""
        ...

    def resume_state(self) -> dict[str, Tensor]:
        """State beside the weights, sharded as on this rank; loading writes into this memory."""
        ...


Writer = Callable[[Path], StorageWriter]


def to_disk(path: Path) -> StorageWriter:
    return FileSystemWriter(path, single_file_per_rank=True, sync_files=True)


@dataclass(slots=True)
class _Pending:
    """A checkpoint that is being written."""

    step: int
    written: Future[Any]
    """Completes when this rank's part is on disk; on rank 0, when all parts are."""
    policy: Thread
    """Thread that writes `policy/` and, on rank 0, does all remaining work after it."""
    error: BaseException | None = None
    path: Path | None = None


class ShardedCheckpoints:
    """The checkpoints of one run on all its ranks. All ranks call every method, in the same order."""

    def __init__(
        self,
        store: CheckpointStore,
        meshes: Meshes,
        *,
        writer: Writer = to_disk,
        file_bytes: int = policy_files.FILE_BYTES,
    ) -> None:
        """`file_bytes`: maximum size of one weight file of the policy, and so of what rank 0 holds of other ranks'
        weights."""
        self._file_bytes = file_bytes
        self.store = store
        self.meshes = meshes
        self._writer = writer
        # Of their own: they work beside training, and beside each other.
        self._group, self._files = distributed.new_group(backend="gloo"), distributed.new_group(backend="gloo")
        self._pending: _Pending | None = None
        if meshes.rank == 0:
            for left in store.root.glob(".step-*.partial"):  # of a run that was killed while it wrote
                shutil.rmtree(left)

    def save(
        self, policy: policies.Policy, learner: Trained, state: CheckpointState, *, heads: JointHeads | None = None
    ) -> None:
        """Start a checkpoint; `finished` and `wait` report its completion. Waits for the previous one first."""
        self.wait()
        policy = heads.beside(policy) if heads else policy
        scratch: Path = self.meshes.from_first(self.store.scratch(state.step))
        if self.meshes.rank == 0:
            self.store.root.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
        distributed.barrier(group=self._group)
        # Whatever the storage does with it, what is written is what is now: the next step changes it in place.
        staged = policy_files.stage(learner.model, self.meshes, learner.published_state(), file_bytes=self._file_bytes)
        content = {WEIGHTS: learner.model.state_dict(), OPTIMIZER: _resumed_by(learner, heads)}
        written = cast(
            "Future[Any]",
            async_save(content, storage_writer=self._writer(scratch / SHARDS), process_group=self._group),
        )
        thread = Thread(target=lambda: self._finish(pending, policy, staged, state, scratch), daemon=True)
        pending = _Pending(state.step, written, thread)
        thread.start()
        self._pending = pending
        if not self.meshes.config.async_checkpoint:
            self.wait()

    def finished(self) -> Path | None:
        """Return the checkpoint completed since the last call on rank 0; None on other ranks or when there is none."""
        pending = self._pending
        if pending is None or self.meshes.rank != 0 or pending.policy.is_alive() or pending.error:
            return None
        self._pending = None
        return pending.path

    def wait(self) -> Path | None:
        """Like `finished`, but wait for completion. Raises CheckpointError on all ranks when any rank failed to write."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._until(pending)
        errors = self.meshes.gathered(str(pending.error) if pending and pending.error else "")
        if any(errors):
            raise CheckpointError(
                f"a checkpoint could not be written to {self.store.root}: {next(filter(None, errors))}; "
                "free space or fix the permissions, then resume the run"
            )
        return pending.path if pending else None

    def load(self, path: Path, learner: Trained, *, heads: JointHeads | None = None) -> None:
        """Load weights and optimizer state from `path`, whatever ranks wrote it. Raises CheckpointError.

        `heads` stay as they are where the checkpoint is of a stage without any.
        """
        try:
            if (path / SHARDS).is_dir():
                reader = FileSystemReader(path / SHARDS)
                if heads and not any(map(of_head, optimizer_entries(reader))):
                    heads = None
                content = {WEIGHTS: learner.model.state_dict(), OPTIMIZER: _resumed_by(learner, heads)}
                load(content, storage_reader=reader, process_group=self._group)
            else:
                optimizer, of_heads = apart(load_file(path / OPTIMIZER_FILE))
                scatter_state(optimizer, learner.resume_state())
                if heads:
                    heads.load_state_tensors(of_heads)
        except (*FAILURES, KeyError) as error:
            raise unfit(path, error) from error

    def _until(self, pending: _Pending) -> None:
        try:
            pending.written.result(timeout=PATIENCE.total_seconds())
        except FAILURES as error:  # every rank hears of it in `wait`
            pending.error = pending.error or error
        pending.policy.join(PATIENCE.total_seconds())

    def _finish(
        self,
        pending: _Pending,
        policy: policies.Policy,
        staged: policy_files.Staged,
        state: CheckpointState,
        scratch: Path,
    ) -> None:
        """Runs beside training: write the policy and, on rank 0, the remaining files, then rename to the final name."""
        first = self.meshes.rank == 0
        files = scratch / ".weights"
        try:
            policy_files.write(staged, files, self.meshes.rank, self._files)
            if first:
                policies.save(policy, scratch / POLICY_DIR, written=files)
                files.rmdir()
                pending.written.result(timeout=PATIENCE.total_seconds())
                pending.path = self.store.complete(scratch, state)
        except FAILURES as error:
            pending.error = pending.error or error
            if first:
                with suppress(TimeoutError):  # whatever it came to: until then it writes there
                    pending.written.exception(timeout=PATIENCE.total_seconds())
                shutil.rmtree(scratch, ignore_errors=True)


def _resumed_by(learner: Trained, heads: JointHeads | None) -> dict[str, Tensor]:
    return learner.resume_state() | (heads.state_tensors() if heads else {})


__all__ = ["SHARDS", "ShardedCheckpoints", "to_disk"]
