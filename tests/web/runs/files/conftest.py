"""Ended runs with files of each kind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from composer_web.core.models import Outbox
from composer_web.policies.services import real_path, record_checkpoint
from composer_web.runs import services
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.files.tasks import delete_files
from composer_web.runs.models import Run
from composer_web.runs.paths import checkpoints_folder, weights_folder
from trainer.weights import WeightStore

Step = Callable[..., Path]


@pytest.fixture
def ended(trained: Run) -> Run:
    """A finished run of four groups with two trajectories each."""
    return services.mark_finished(run=trained)


@pytest.fixture
def failed(trained: Run) -> Run:
    return services.mark_failed(run=trained, cause="the machine burned")


@pytest.fixture
def step() -> Iterator[Step]:
    """step(run, 20): a checkpoint of the run, recorded; its folder."""
    made = []

    def make(run: Run, number: int, *, final: bool = False) -> Path:
        folder = checkpoints_folder(run) / f"step-{number:06d}"
        shutil.copytree(real_path(run.policy_in.base_dir), folder / "policy")
        record_checkpoint(policy=services.output_policy(run), version=number, path=folder / "policy", final=final)
        made.append(folder.parent)
        return folder

    yield make
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def published() -> Iterator[Callable[[Run], WeightStore]]:
    """published(run): its weight store with versions 0 and 1."""
    made = []

    def make(run: Run) -> WeightStore:
        made.append(weights_folder(run))
        store = WeightStore(weights_folder(run), dtype="float32")
        for version in (0, 1):
            store.publish(version, {"weight": torch.full((64,), float(version))})
        return store

    yield make
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def work() -> Callable[[], list[FileDeletion]]:
    """work(): what a worker does with the messages that ask for deletions; these deletions as they are then."""

    def carry_out() -> list[FileDeletion]:
        found = []
        for message in Outbox.objects.filter(task="runs.delete_files").order_by("pk"):
            delete_files(**message.kwargs)
            found.append(FileDeletion.objects.get(pk=message.kwargs["deletion_id"]))
            message.delete()
        return found

    return carry_out
