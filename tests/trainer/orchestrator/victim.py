"""One process of a run that is killed: the asynchronous loop on groups without an engine, until SIGKILL or the end."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import torch

from tests.support.journal import Journal
from tests.support.local_loop import LocalSource
from tests.trainer.orchestrator.groups import shuffled
from tests.trainer.stages.memory import BASE_POLICY, MemorySink, small_config
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, OrchestratorConfig, RLConfig
from trainer.rl.stage import run_rl
from trainer.router_replay.validate import shape_of
from trainer.weights import WeightStore

STEPS = 4


def config() -> RLConfig:
    """Two groups a step, one of surplus, two versions of lag, a checkpoint every second step."""
    return small_config(
        steps=STEPS,
        max_off_policy_steps=2,
        max_in_flight_groups=5,
        checkpoint=CheckpointConfig(every_steps=2, keep=1),
        orchestrator=OrchestratorConfig(over_sampling=0.5),
    )


class Reporter(MemorySink):
    """Writes each step's loss where the next process does not overwrite it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def metrics(self, step, values) -> None:
        if "optim/loss" not in values:  # a step's checkpoint is timed in a report of its own
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, "loss": values["optim/loss"].hex()}) + "\n")


def main(root: Path, seed: int, kill_at: int, only: str = "") -> None:
    """Runs until the end, or until just before the `kill_at`-th time that something is made durable (0: never), by the thread
    of the name `only` if that is given."""
    torch.set_num_threads(1)
    real, calls = os.fsync, 0

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += not only or threading.current_thread().name == only
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)

    os.fsync = fsync
    store = WeightStore(root / "weights", dtype="float32")
    with LocalSource(
        config=config(),
        journal=Journal(root / "groups"),
        play=shuffled(seed),
        published=lambda: max(store.versions.all(), default=-1),
        shape=shape_of(BASE_POLICY),
    ) as source:
        reporter = Reporter(root / "losses.jsonl")
        reporter.heard = source.version_published
        run_rl(
            policy_dir=BASE_POLICY,
            config=config(),
            seed=0,
            source=source,
            sink=reporter,
            store=store,
            checkpoints=CheckpointStore(root / "checkpoints", keep=1),
        )
