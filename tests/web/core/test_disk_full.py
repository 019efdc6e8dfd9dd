"""A full disk: runs pause with the cause, nothing accepted is lost, and everything goes on once there is room."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest
from django.test import Client
from safetensors import SafetensorError

from composer_web.accounts.models import User
from composer_web.core import disk
from composer_web.core.artifacts import ArtifactError, ArtifactStore
from composer_web.core.queue import leases
from composer_web.env import REPOSITORY, env
from composer_web.policies.services import import_base
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.rollouts.selectors import verdict_counts
from composer_web.rollouts.worker.execution import execute
from composer_web.runs import services
from composer_web.runs.models import Run, TrainBatch
from composer_web.runs.training.trainer_bridge import RunControl
from composer_web.runs.training.trainer_process import pause_without_room
from composer_web.tasks.services import build_procedural
from tests.web.cli.support import Cli, data
from tests.web.helpers import eventually
from tests.web.product import Product
from trainer.config import CheckpointConfig, OptimizerConfig, RunConfig
from trainer.errors import StageError
from trainer.toy.preset import toy_rl

STEPS = 6
STAGE = toy_rl(
    steps=STEPS,
    groups_per_step=2,
    group_size=2,
    max_in_flight_groups=4,
    eval_suite=None,
    checkpoint=CheckpointConfig(every_steps=2, keep=1),
    optimizer=OptimizerConfig(warmup_steps=1, learning_rate=3e-4),
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 64 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write until the disk takes no more."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with pytest.raises(OSError) as full:
                write_for_ever(file, size)
            assert full.value.errno == errno.ENOSPC
    return filler


def write_for_ever(file: FileIO, size: int) -> None:
    while True:
        file.write(b"x" * size)


def test_a_full_disk_is_recognised_behind_other_errors(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(ArtifactError, match="free disk space") as error:
        ArtifactStore(small_disk).put("a", os.urandom(1 << 16))
    told = disk.why_full(error.value)
    assert told is not None and "the disk is full" in told and "then resume the run" in told
    assert disk.why_full(OSError(errno.EACCES, "Permission denied")) is None
    words = "Error while serializing: I/O error: No space left on device (os error 28)"
    assert disk.why_full(SafetensorError(words))
    assert disk.why_full(SafetensorError(words.replace("28", "13"))) is None
    assert disk.why_full(RuntimeError(words)) is None, "a policy may have said so"
    assert disk.why_full(StageError(f"the policy wrote: {words}")) is None


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """More is kept in reserve than any disk has."""
    monkeypatch.setattr(env(), "disk_reserve_mb", 1 << 40)
    return None


@pytest.mark.django_db(transaction=True)
def test_a_worker_without_room_gives_the_group_back_and_pauses_the_run(running: Run, no_room: None) -> None:
    rollouts.pump(run_id=running.pk)
    group = Group.objects.filter(run=running).order_by("pk")[0]
    assert "given back" in execute(group.pk)
    group.refresh_from_db()
    assert (group.state, group.attempts, group.infra_errors) == ("dispatched", 0, 0)
    assert "OPENCOMPOSER_DISK_RESERVE_MB" in group.cause
    running.refresh_from_db()
    assert running.state == "pausing" and "is full" in running.failure
    assert rollouts.pump(run_id=running.pk) == 0
    assert "is full" in running.events.get(kind="alert").message


@pytest.mark.django_db
def test_a_trainer_without_room_pauses_the_run_and_page_api_and_command_line_say_why(
    running: Run, no_room: None, people: dict[str, User], bearer: Callable[..., dict[str, str]], cli: Cli
) -> None:
    held = leases.take(f"run:{running.pk}", owner="t", seconds=60)
    assert held is not None
    with pytest.raises(disk.DiskFull):
        RunControl(running, held).should_stop()
    leases.release(held)
    pause_without_room(running, str(disk.why_full(disk.DiskFull("the disk of /data is full: free some"))))
    running.refresh_from_db()
    assert (running.state, running.failure) == ("paused", "the disk of /data is full: free some")
    client = Client()
    client.force_login(people["operator"])
    shown = client.get(f"/runs/{running.pk}/").content.decode()
    assert running.failure in shown and "then resume" in shown
    answer = client.get(f"/api/v1/runs/{running.pk}", headers=bearer("viewer")).json()
    assert (answer["state"], answer["failure"]) == ("paused", running.failure)
    assert data(cli("runs", "get", str(running.pk), "--json"))["failure"] == running.failure
    services.resume_run(run=running)
    running.refresh_from_db()
    assert (running.state, running.failure) == ("queued", "")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.django_db(transaction=True)
def test_a_run_on_a_disk_that_fills_up_goes_on_when_there_is_room_again(
    small_disk: Path, tmp_path: Path, free_port: int
) -> None:
    """Weights, checkpoints and trajectories all lie on the small disk; the errors are the kernel's."""
    import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    build_procedural(n_train=STEPS * STAGE.groups_per_step, n_held_out=1)  # not one prompt to spare
    run = services.create_run(config=RunConfig(name="full", stage=STAGE))
    product = Product(tmp_path, free_port, OPENCOMPOSER_DATA=str(small_disk), OPENCOMPOSER_DISK_RESERVE_MB="0")
    for name in product.commands:
        product.start(name)

    def reach(condition: Callable[[Run], bool], what: str) -> None:
        def holds() -> bool:
            run.refresh_from_db()
            assert run.state != "failed", run.failure
            return condition(run)

        eventually(holds, seconds=600, what=what)

    try:
        services.start_run(run=run)
        reach(lambda r: r.step >= 3, "step 3")
        filler = fill(small_disk)
        reach(lambda r: r.state == "paused", "a pause")
        assert "the disk is full" in run.failure and str(small_disk) in run.failure
        before = dict(TrainBatch.objects.filter(run=run).values_list("step", "group_ids"))
        accepted = set(Group.objects.filter(run=run, state__in=["accepted", "consumed"]).values_list("pk", flat=True))
        filler.unlink()
        services.resume_run(run=run)
        reach(lambda r: r.state == "finished", "the end")
    finally:
        product.stop()
    counts = verdict_counts(run=run)
    assert counts["open"] == counts["infra_error"] == 0
    assert counts["dispatched"] == counts["passed"] + counts["failed"] == STEPS * 2 * 2
    assert not Group.objects.filter(run=run, state="dropped").exists()
    after = dict(TrainBatch.objects.filter(run=run).values_list("step", "group_ids"))
    assert after | before == after and sorted(after) == list(range(1, STEPS + 1))
    assert accepted <= {pk for ids in after.values() for pk in ids}
