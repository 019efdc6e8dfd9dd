"""A run on several ranks through the Celery train worker: torchrun below its trainer process, killed and resumed once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from django.db import connections

from composer_web.env import REPOSITORY, env
from composer_web.policies.models import Policy
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.runs.paths import ranks_lock
from composer_web.runs.training.train_worker import PlaceTaken, TrainWorker
from composer_web.tasks.models import Suite
from scripts.stack import ports
from tests.trainer.stages.memory import small_config
from tests.web.helpers import eventually
from tests.web.product import Product
from tests.web.runs.training.test_train_dispatch import drive, exactly_once
from trainer.config import CheckpointConfig, ParallelConfig, RunConfig
from trainer.distributed.elastic.parent import RANKS_LOCK

RANK = b"trainer.distributed.worker"
PATIENCE = 600.0
"""Seconds: four processes import torch one after the other, before the first step and after the kill."""


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with redis.Redis.from_url(env().redis_url) as client:
        client.flushdb()
    made = Product(tmp_path, ports.any_free(), OPENCOMPOSER_TRAINER_LEASE_SECONDS="3")
    yield made
    made.stop()
    eventually(lambda: not ranks(made), what="the end of the ranks")
    connections.close_all()


def ranks(product: Product) -> dict[int, int]:
    """Rank by process, of the ranks on this test's database."""
    database = f"OPENCOMPOSER_DATABASE_URL={product.variables['OPENCOMPOSER_DATABASE_URL']}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if RANK not in (folder / "cmdline").read_bytes().split(b"\0"):
                    continue
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            of = [int(one.removeprefix(b"RANK=")) for one in variables if one.startswith(b"RANK=")]
            if database in variables and of:
                found[int(folder.name)] = of[0]
    return found


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(2400)
def test_a_run_on_two_ranks_whose_worker_is_killed_is_resumed_once(
    product: Product, base: Policy, make_suite: Callable[..., Suite]
) -> None:
    make_suite(count=24)
    stage = small_config(
        steps=4,
        eval_suite=None,
        max_in_flight_groups=4,
        checkpoint=CheckpointConfig(every_steps=1, keep=2),
        parallel=ParallelConfig(world_size=2, dp_shard=2, device="cpu"),
    )
    run: Run = services.start_run(run=services.create_run(config=RunConfig(name="two ranks", stage=stage)))
    product.start("train")
    drive(run, until=lambda: run.step >= 1, what="the first step", seconds=PATIENCE)
    first = ranks(product)
    assert sorted(first.values()) == [0, 1]
    product.kill("train")
    drive(
        run,
        until=lambda: run.recoveries == 1 and run.step >= 2,
        what="a step after the worker was killed",
        seconds=PATIENCE,
    )
    second = ranks(product)
    assert sorted(second.values()) == [0, 1] and not first.keys() & second.keys()
    assert not any(Path(f"/proc/{pid}").exists() for pid in first), "they ended before others began"
    drive(run, until=lambda: run.state == "finished", what="the end", seconds=PATIENCE)
    exactly_once(run, 4)
    assert run.recoveries == 1
    eventually(lambda: not ranks(product), seconds=PATIENCE, what="the end of the ranks")


@pytest.mark.django_db(transaction=True)
def test_a_place_is_not_free_while_a_rank_of_it_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its worker, its trainer and torchrun are gone, and it still has the GPU."""
    monkeypatch.setattr(env(), "data", tmp_path)
    worker = TrainWorker("gpu-0", ["train"])
    worker.occupy(seconds=0)
    worker.vacate()
    code = (
        "from trainer.distributed.elastic.parent import hold_ranks_lock; hold_ranks_lock(); print(flush=True); input()"
    )
    lock = {RANKS_LOCK: str(ranks_lock(worker.queue))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    old = [subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, env=lock, **pipes) for _ in range(2)]
    for rank in old:
        assert rank.stdout is not None and rank.stdout.readline()
    for rank in old:
        with pytest.raises(
            PlaceTaken, match=r"ranks that an earlier train worker named train@.*/gpu-0 started still run"
        ):
            worker.occupy(seconds=0)
        rank.communicate(b"\n", timeout=30)
    worker.occupy(seconds=5)
    worker.vacate()
