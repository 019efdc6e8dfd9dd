"""Checkpoints of a sharded run: written by all ranks at once, while training goes on, read by any number of ranks.

    step-000020/
      policy/      Hugging Face layout, as in every checkpoint
      shards/      torch's distributed checkpoint: weights and optimizer state, cut as the ranks were
      state.json   as in every checkpoint, written last

A checkpoint is under a temporary name until all of it is on disk, so that a run killed at any moment has the one before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import StorageWriter

from trainer import policy as policies
from trainer.parallel import writing
from trainer.parallel.learner import ShardedLearner
from trainer.parallel.mesh import PATIENCE, Meshes
from trainer.parallel.shard import deal_out
from trainer.parallel.supervised import ShardedSupervisedLearner
from trainer.stages.checkpoint import (
    OPTIMIZER_FILE,
    POLICY_DIR,
    CheckpointError,
    CheckpointState,
    CheckpointStore,
)
from trainer.stages.resume import unfit

SHARDS = "shards"
WEIGHTS, OPTIMIZER = "policy", "optimizer"

FAILURES = (OSError, ValueError, RuntimeError, TimeoutError, CheckpointException, SafetensorError)
"""What writing and reading can come to."""

Sharded = ShardedLearner | ShardedSupervisedLearner
Writer = Callable[[Path], StorageWriter]


def to_disk(path: Path) -> StorageWriter:
    return FileSystemWriter(path, single_file_per_rank=True, sync_files=True)


@dataclass(slots=True)
class _Pending:
    """A checkpoint on its way to the disk."""

    step: int
    written: Future[Any]
    """Of this rank's part; on rank 0, of all parts."""
    policy: Thread
    """Writes `policy/`, and on rank 0 all that is left to do after it."""
    error: BaseException | None = None
    path: Path | None = None


class ShardedCheckpoints:
    """The checkpoints of one run on all its ranks. Every method is called by all of them, in the same order."""

    def __init__(
        self,
        store: CheckpointStore,
        meshes: Meshes,
        *,
        writer: Writer = to_disk,
        file_bytes: int = writing.FILE_BYTES,
    ) -> None:
        """`file_bytes`: most of one file of the policy's weights, which is what rank 0 holds of others' at a time."""
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

    def save(self, policy: policies.Policy, learner: Sharded, state: CheckpointState) -> None:
        """Begin a checkpoint; `finished` and `wait` say when it is there. One at a time: the last is awaited first."""
        self.wait()
        scratch: Path = self.meshes.from_first(self.store.scratch(state.step))
        if self.meshes.rank == 0:
            self.store.root.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
        distributed.barrier(group=self._group)
        # Whatever the storage does with it, what is written is what is now: the next step changes it in place.
        staged = writing.stage(learner.model, self.meshes, learner.plain_state(), file_bytes=self._file_bytes)
        content = {WEIGHTS: learner.model.state_dict(), OPTIMIZER: learner.kept_state()}
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
        """The checkpoint that has become complete since the last call, on rank 0; None elsewhere and otherwise."""
        pending = self._pending
        if pending is None or self.meshes.rank != 0 or pending.policy.is_alive() or pending.error:
            return None
        self._pending = None
        return pending.path

    def wait(self) -> Path | None:
        """The same after waiting for it. Raises CheckpointError on all ranks when one could not write."""
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

    def load(self, path: Path, learner: Sharded) -> None:
        """Weights and optimizer state of the checkpoint at `path`, whatever ranks wrote it. Raises CheckpointError."""
        try:
            if (path / SHARDS).is_dir():
                content = {WEIGHTS: learner.model.state_dict(), OPTIMIZER: learner.kept_state()}
                load(content, storage_reader=FileSystemReader(path / SHARDS), process_group=self._group)
            else:
                deal_out(load_file(path / OPTIMIZER_FILE), learner.kept_state())
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
        staged: writing.Staged,
        state: CheckpointState,
        scratch: Path,
    ) -> None:
        """Beside training: the policy, and on rank 0 the rest of the files and the name that makes it a checkpoint."""
        first = self.meshes.rank == 0
        files = scratch / ".weights"
        try:
            writing.write(staged, files, self.meshes.rank, self._files)
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


def read_optimizer(path: Path) -> dict[str, Tensor]:
    """The whole optimizer state of a sharded checkpoint, for a run on one process. Raises OSError."""
    reader = FileSystemReader(path / SHARDS)
    prefix = f"{OPTIMIZER}."
    try:
        content: dict[str, Any] = {
            name: torch.empty(entry.size, dtype=entry.properties.dtype)
            for name, entry in reader.read_metadata().state_dict_metadata.items()
            if name.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
        }
        load(content, storage_reader=reader, no_dist=True)
    except FAILURES as error:
        raise OSError(f"{SHARDS}: {error}") from error
    return {name.removeprefix(prefix): tensor for name, tensor in content.items()}


__all__ = ["SHARDS", "ShardedCheckpoints", "read_optimizer", "to_disk"]
