"""Step checkpoints: a folder that is complete or absent.

    step-000020/
      policy/                Hugging Face layout: loads as a policy, can be shipped or evaluated
      optimizer.safetensors  optimizer state by parameter name
      state.json             step, version, prompts consumed, stage state; written last, with the digests of the rest
      in-use/                a file per run, evaluation or channel that uses it (`in_use.py`)

A checkpoint is written under a temporary name, synced and renamed. No pickle anywhere: reading one runs no code. The two
newest are whole; older ones lose the optimizer, and their weights become differences (`trainer.weights.differences`).
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainer import policy as policies
from trainer.checkpoint import in_use
from trainer.checkpoint.layout import OPTIMIZER_FILE, POLICY_DIR, SHARDS, STATE_FILE
from trainer.errors import StageError
from trainer.weights import differences
from trainer.weights.differences import digest_of, sync

log = logging.getLogger(__name__)

RESUMABLE = 2
"""Newest checkpoints that keep the optimizer: the one before stands in when the newest is damaged."""
_NAME = re.compile(r"step-(\d{6,})")


class CheckpointError(StageError):
    """A checkpoint cannot be read or belongs to something else. The message names the folder and the remedy."""


class CheckpointState(BaseModel):
    """Everything in a checkpoint except tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    stage: str
    step: int
    version: int
    seed: int
    consumed_prompts: list[int] = Field(default_factory=list)
    """Prompt indices trained on up to `step`, in order of training."""
    skipped_steps: list[int] = Field(default_factory=list)
    """Steps up to `step` with non-finite gradients; they consumed their prompts and changed nothing."""
    digests: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each other file, by path relative to the checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    state: CheckpointState
    optimizer: dict[str, Tensor]

    @property
    def policy_dir(self) -> Path:
        return self.path / POLICY_DIR


class CheckpointStore:
    """The checkpoints of one run, under one folder with one writer."""

    def __init__(self, root: Path, *, keep: int) -> None:
        self.root = Path(root)
        self.keep = keep

    def save(
        self,
        policy: policies.Policy,
        optimizer: Mapping[str, Tensor],
        state: CheckpointState,
        *,
        weights: Mapping[str, Tensor] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Path:
        """Write checkpoint `state.step` (replacing one of that step) and drop the oldest beyond `keep` + the newest, unless they
        are in use.

        `weights` stand in for the model's own (merged adapters); `dtype` is their format on disk.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        scratch = self.scratch(state.step)
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir()
            policies.save(policy, scratch / POLICY_DIR, weights=weights, dtype=dtype)
            save_file(dict(optimizer), scratch / OPTIMIZER_FILE)
            return self.complete(scratch, state)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(scratch, ignore_errors=True)  # also what it holds: the disk may be full
            raise CheckpointError(
                f"checkpoint of step {state.step} could not be written to {self.root}: {error}; "
                "free space or fix the permissions, then resume the run"
            ) from error

    def scratch(self, step: int) -> Path:
        """Folder in which checkpoint `step` is written before it is renamed."""
        return self.root / f".step-{step:06d}.{os.getpid()}.partial"

    def complete(self, scratch: Path, state: CheckpointState) -> Path:
        """Turn `scratch` into the durable checkpoint of `state.step` and drop old ones. Raises OSError."""
        final = self.root / f"step-{state.step:06d}"
        files = sorted(path for path in scratch.rglob("*") if path.is_file())
        digests = {path.relative_to(scratch).as_posix(): digest_of(path) for path in files}
        whole = state.model_copy(update={"digests": digests})
        (scratch / STATE_FILE).write_text(whole.model_dump_json(indent=1), encoding="utf-8")
        sync_tree(scratch)
        for holder in in_use.holders(final):
            in_use.hold(scratch, holder)
        if final.exists():
            shutil.rmtree(final)
        scratch.rename(final)
        sync(self.root)
        self._prune()
        return final

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint, ascending."""
        if not self.root.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in self.root.iterdir() if (path / STATE_FILE).is_file())
        return sorted(int(match[1]) for match in found if match)

    def latest(self, *, stage: str, whole: bool = True) -> Checkpoint | None:
        """The newest checkpoint, verified; None when there is none. Raises CheckpointError."""
        steps = self.steps()
        return self.load(steps[-1], stage=stage, whole=whole) if steps else None

    def load(self, step: int, *, stage: str, whole: bool = True) -> Checkpoint:
        """Load the checkpoint of `step` with every digest verified; without the optimizer unless `whole`. Raises
        CheckpointError."""
        path = self.root / f"step-{step:06d}"
        try:
            state = CheckpointState.model_validate_json((path / STATE_FILE).read_text(encoding="utf-8"))
            for name, digest in state.digests.items():
                if digest_of(path / name) != digest:
                    raise CheckpointError(
                        f"checkpoint {path}: {name} is damaged; remove this folder to resume from an earlier one"
                    )
            optimizer = _optimizer(path) if whole else {}
        except (OSError, ValidationError, SafetensorError) as error:
            raise CheckpointError(
                f"checkpoint {path} cannot be read ({error}); remove this folder to resume from an earlier one"
            ) from error
        if state.stage != stage:
            raise CheckpointError(f"checkpoint {path} is of stage {state.stage!r}, this run is {stage!r}: wrong folder")
        return Checkpoint(path, state, optimizer)

    def _prune(self) -> None:
        """Drop old checkpoints that nobody uses. Of the others, only the newest `RESUMABLE` keep the optimizer, which is most
        of their size, and whole weights: a run resumes from the newest one."""
        paths = [self.root / f"step-{step:06d}" for step in self.steps()]
        for path in paths[: -(self.keep + 1)]:
            if not in_use.remove_unless_held(path):
                _drop_optimizer(path)
                _restore(path)  # now: what it differs from is removed next
        kept = paths[-(self.keep + 1) :]
        for path in kept[:-RESUMABLE]:
            _drop_optimizer(path)
        if len(kept) > RESUMABLE:  # older ones are coded already, or were restored for somebody
            older, newer = kept[-RESUMABLE - 1 :][:2]
            try:
                _code_weights(older, newer)
            except OSError as error:  # such as a full disk
                log.warning("the weights of %s stay whole: %s", older, error)


def _drop_optimizer(path: Path) -> None:
    """Remove the optimizer of a checkpoint, whose policy stays usable."""
    for file in (path / OPTIMIZER_FILE, path / SHARDS):
        _drop(path, file)


def _code_weights(path: Path, newer: Path) -> None:
    """Replace the weights of a checkpoint that nobody uses by their differences against the next newer one's. Raises
    OSError."""
    if in_use.holders(path):
        return
    for file in sorted((path / POLICY_DIR).glob("*.safetensors")):
        base = newer / POLICY_DIR / file.name
        if base.is_file() and differences.code(file, base) is not None:
            _drop(path, file)


def _restore(path: Path) -> None:
    try:
        differences.restore(path / POLICY_DIR)
    except differences.DifferenceError as error:  # whoever starts from it is told the same
        log.warning("%s", error)


def _drop(path: Path, target: Path) -> None:
    """Remove a file or folder from a checkpoint. First from the digests, so that a crash between the two leaves a
    checkpoint that still loads."""
    if not target.exists():
        return
    state_file, name = path / STATE_FILE, target.relative_to(path).as_posix()
    state = CheckpointState.model_validate_json(state_file.read_text(encoding="utf-8"))
    digests = {
        file: digest for file, digest in state.digests.items() if file != name and not file.startswith(f"{name}/")
    }
    scratch = state_file.with_suffix(".partial")
    scratch.write_text(state.model_copy(update={"digests": digests}).model_dump_json(indent=1), encoding="utf-8")
    sync(scratch)
    scratch.rename(state_file)
    shutil.rmtree(target) if target.is_dir() else target.unlink()


def _optimizer(path: Path) -> dict[str, Tensor]:
    if (path / OPTIMIZER_FILE).exists():
        return load_file(path / OPTIMIZER_FILE)
    from trainer.checkpoint.sharded import read_optimizer  # only then: it loads torch.distributed

    return read_optimizer(path)


def sync_tree(root: Path) -> None:
    for path in root.rglob("*"):
        sync(path)
    sync(root)
