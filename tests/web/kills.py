"""Kill -9 of train workers and trainer processes at random moments, and the proof that every batch was trained exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from composer_web.core.artifacts import artifacts
from composer_web.core.models import WorkerHeartbeat
from composer_web.rollouts import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs.messages import holder
from composer_web.runs.models import Run, RunState, TrainBatch
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink
from tests.web.played import play_dispatched
from tests.web.product import Product
from trainer.checkpoint.store import CheckpointStore
from trainer.config import RLConfig
from trainer.policy import published_dtype
from trainer.rl.stage import run_rl
from trainer.types import TrainGroup
from trainer.weights import WeightStore


@dataclass
class Chaos:
    """Plays the groups of runs, and kills beside it. `workers` are names of train programs of the product."""

    product: Product
    workers: list[str]
    seed: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """What was killed, and in which moment of a run's dispatch."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def play(self, runs: list[Run], seconds: float) -> None:
        """Be the rollout workers of `runs` for so long."""
        end = time.monotonic() + seconds
        while True:
            for run in runs:
                run.refresh_from_db()
                assert run.state != RunState.FAILED, run.failure
                rollouts.pump(run_id=run.pk)
                play_dispatched(run)
            if time.monotonic() >= end:
                return
            time.sleep(min(0.05, max(0.0, end - time.monotonic())))

    def kill(self, runs: list[Run]) -> bool:
        """Kill a trainer process or a ready worker, whichever there is; whether there was one."""
        pids = self.product.trainer_pids()
        ready = set(WorkerHeartbeat.objects.filter(kind="train").values_list("pid", flat=True))
        workers = [name for name in self.workers if ready & set(self.product.pids(name))]
        victims = [*[("trainer", pid) for pid in pids], *[("worker", name) for name in workers]]
        if not victims:
            return False
        kind, victim = self.random.choice(victims)
        moment = self._moment(runs)
        if kind == "worker":
            self.product.kill(str(victim))
        else:
            try:
                os.kill(int(victim), signal.SIGKILL)
            except ProcessLookupError:
                return False
        self.kills[f"{kind}, {moment}"] += 1
        return True

    def _moment(self, runs: list[Run]) -> str:
        run = self.random.choice(runs)
        run.refresh_from_db()
        if run.state == RunState.QUEUED:
            return "a run dispatched and not claimed"
        if holder(run.pk) is None:
            return "a run lost and not claimed"
        if run.policy_version < 0 or not self.product.trainer_pids():
            return "a run claimed, its trainer starts"
        if run.wanted_step is None:
            return "a step computed"
        known = TrainBatch.objects.filter(run=run, step=run.wanted_step).exists()
        return "a step dispatched and not taken" if known else "a step wanted"

    @property
    def count(self) -> int:
        return sum(self.kills.values())


@dataclass(frozen=True)
class Proof:
    """Of one run: what its rows say against an uninterrupted training on the same batches."""

    steps: int
    trained_twice: int
    """Groups in two batches, and steps whose weights are not those of training each batch before once, in order."""
    lost: int
    """Groups that were taken for a step and are in no batch, batches that were not trained, and steps without a batch."""


def prove(run: Run) -> Proof:
    """Train the recorded batches again in this process, without interruption, and compare the digest of each step."""
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    batches = list(TrainBatch.objects.filter(run=run).order_by("step"))
    assigned = [pk for batch in batches for pk in batch.group_ids]
    consumed = set(Group.objects.filter(run=run, state="consumed").values_list("pk", flat=True))
    keys = dict(Group.objects.filter(pk__in=assigned).values_list("pk", "train_key"))
    groups = [artifacts().get_model(keys[pk], TrainGroup) for pk in assigned]
    sink = MemorySink()
    with TemporaryDirectory() as place:
        run_rl(
            policy_dir=BASE_POLICY,
            config=stage,
            seed=run.seed,
            source=ListSource(groups, stage.groups_per_step),
            sink=sink,
            store=WeightStore(
                f"{place}/weights",
                dtype=published_dtype(stage.checkpoint, BASE_POLICY),
                mode=stage.checkpoint.codec,
            ),
            checkpoints=CheckpointStore(Path(place) / "checkpoints", keep=1),
        )
    digests = dict(sink.versions)
    trained = list(run.trained_steps.values_list("step", "digest"))
    wrong = {step for step, digest in trained if digest != digests[step]}
    untrained = {batch.step for batch in batches} - {step for step, _ in trained}
    missing = set(range(1, stage.steps + 1)) - {batch.step for batch in batches}
    return Proof(
        steps=len(batches),
        trained_twice=len(assigned) - len(set(assigned)) + len(wrong),
        lost=len(consumed - set(assigned)) + len(untrained) + len(missing),
    )
