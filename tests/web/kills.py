"""Kill -9 of all that dispatches training, at random moments, and the proof that every batch was trained exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from django.db.models import Max
from django.utils import timezone

from composer_web.core.artifacts import artifacts
from composer_web.core.models import Lease, WorkerHeartbeat
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs.messages import holder, lease_name
from composer_web.runs.models import Run, RunEvent, RunState, TrainBatch
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink
from tests.web.played import play_dispatched
from tests.web.product import Product
from trainer.checkpoint.store import CheckpointStore
from trainer.config import RLConfig
from trainer.policy import published_dtype
from trainer.rl.stage import run_rl
from trainer.types import TrainGroup
from trainer.weights import WeightStore

DISPATCH, CLAIM, STEP = "dispatch to claim", "claim to step", "step to acknowledgement"
STRETCHES = (DISPATCH, CLAIM, STEP)
"""Parts of a run's way, as often as its trainer is lost: nobody holds it; a trainer starts or waits for a batch; a recorded
batch is not yet a checkpoint."""
AIM_SECONDS = 20.0
"""Most seconds to wait for the stretch in which the fewest kills fell."""


@dataclass(frozen=True)
class Victim:
    """A process, and the run that it works for."""

    kind: str
    name: str
    run: Run


@dataclass
class Chaos:
    """Plays the groups of runs, and kills beside it. `workers` are names of train programs of the product."""

    product: Product
    workers: list[str]
    seed: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """What was killed, and in which moment of its run."""
    stretches: Counter[str] = field(default_factory=Counter)
    """In which of STRETCHES the run of the killed process was."""

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

    def kill(self, runs: list[Run], *, aimed: bool = False) -> bool:
        """Kill one ready process; whether there was one. `aimed`: wait for the stretch in which the fewest kills fell."""
        end = time.monotonic() + (AIM_SECONDS if aimed else 0.0)
        rarest = min(STRETCHES, key=lambda stretch: self.stretches[stretch])
        while True:
            victims = self._victims(runs)
            if aimed and time.monotonic() < end:
                victims = [victim for victim in victims if moment(victim.run)[0] == rarest]
            if victims and self._end(self.random.choice(victims)):
                return True
            if time.monotonic() >= end:
                return False
            self.play(runs, 0.0)

    def _end(self, victim: Victim) -> bool:
        stretch, detail = moment(victim.run)
        if victim.kind == "trainer":
            try:
                os.kill(int(victim.name), signal.SIGKILL)
            except ProcessLookupError:
                return False
        else:
            self.product.kill(victim.name)
        self.stretches[stretch] += 1
        self.kills[f"{victim.kind}, {detail}"] += 1
        return True

    def _victims(self, runs: list[Run]) -> list[Victim]:
        """Trainers, ready train workers, the sender of the outbox and the clock. A worker without a run is one for runs that
        nobody holds; sender and clock work for all."""
        found = []
        held = {run.pk: (holder(run.pk) or "").rpartition("/")[2] for run in runs}
        free = [run for run in runs if not held[run.pk]] or runs
        ready = set(WorkerHeartbeat.objects.values_list("pid", flat=True))
        for run in runs:
            found += [Victim("trainer", str(pid), run) for pid in self.product.trainer_pids(run.pk)]
        for name in self.workers:
            own = [run for run in runs if held[run.pk] == name]
            found.append(Victim("worker", name, self.random.choice(own or free)))
        for name in ("control", "beat"):
            found.append(Victim(name, name, self.random.choice(free if name == "control" else runs)))
        running = {name for name in self.product.running if ready & set(self.product.pids(name))}
        return [victim for victim in found if victim.kind == "trainer" or victim.name in running]

    @property
    def count(self) -> int:
        return sum(self.kills.values())


def moment(run: Run) -> tuple[str, str]:
    """(stretch, what exactly) of the run now, from its rows."""
    run.refresh_from_db()
    lease = Lease.objects.filter(resource=lease_name(run.pk), expires_at__gte=timezone.now()).exclude(owner="").first()
    if lease is None:
        return DISPATCH, "a run queued" if run.state == RunState.QUEUED else "a run put back"
    mine = run.trained_steps.filter(token=lease.token).exists()
    resumed = RunEvent.objects.filter(run=run, message__startswith="resumed from", at__gte=lease.taken_at).exists()
    if not (mine or resumed or (run.policy_version >= 0 and not run.recoveries)):
        return CLAIM, "its trainer starts"
    batch = TrainBatch.objects.filter(run=run).aggregate(step=Max("step"))["step"] or 0
    trained = run.trained_steps.aggregate(step=Max("step"))["step"] or 0
    saved = RunEvent.objects.filter(run=run, kind="checkpoint").aggregate(step=Max("step"))["step"] or 0
    if run.wanted_step is not None and run.wanted_step > batch:
        return CLAIM, "a step wanted"
    if run.wanted_step is not None:
        return STEP, "a step sent and not taken"
    if trained < batch:
        return STEP, "a step taken and not trained"
    return (STEP, "a step trained and not saved") if saved < batch else (CLAIM, "between two steps")


@dataclass(frozen=True)
class Proof:
    """Rows of one run against an uninterrupted training on the same batches."""

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
