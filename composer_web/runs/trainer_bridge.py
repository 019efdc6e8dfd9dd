"""Between a training stage and the control plane: accepted groups in, facts out, over the ORM.

Implements `trainer.stages.base.GroupSource` and `StageSink`. Every call survives a restart of Postgres; writes are
refused once the lease of the run is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from django.db import connections, transaction

from composer_web.evals import services as evals
from composer_web.evals.selectors import FINAL as EVALUATION_FINAL
from composer_web.ops import disk, leases
from composer_web.ops.artifacts import artifacts
from composer_web.ops.database import survives_restart
from composer_web.policies.services import record_checkpoint
from composer_web.rollouts import auditing, lens, scheduling
from composer_web.rollouts import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs import metrics as run_metrics
from composer_web.runs import services
from composer_web.runs.clusters import EngineMeter
from composer_web.runs.engine_watch import EngineWatch
from composer_web.runs.models import Run, RunState, TrainBatch
from composer_web.runs.whereabouts import deployment_name, weights_folder
from trainer.asynchrony.window import choose
from trainer.config import RLConfig
from trainer.learning.streams import TrainedGroup
from trainer.rollouts.types import TrainGroup
from trainer.stages.base import BatchTimeout, StageError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2


class Interrupted(StageError):
    """The run was paused or cancelled, this process stops, or the lease went to another trainer."""


class RunControl:
    """Whether the stage should go on. Asked between steps and while it waits."""

    def __init__(self, run: Run, held: leases.Held, *, stopping: Callable[[], bool]) -> None:
        self.run, self.held, self._stopping = run, held, stopping

    def should_stop(self) -> bool:
        """Raises DiskFull when there is no room for another step."""
        disk.require_space()
        return self.held.lost.is_set() or self._stopping() or self.state() != RunState.RUNNING

    def state(self) -> str:
        return survives_restart(lambda: Run.objects.values_list("state", flat=True).get(pk=self.run.pk))()

    def fence(self) -> None:
        """Inside a transaction. Raises LeaseLost."""
        leases.require(self.held)


class DatabaseGroupSource:
    """Accepted groups of a run, assigned to steps in windowed first-in-first-out order."""

    waits_for: tuple[int, ...] = ()
    """Prompts that the batch asked for last waits for."""

    def __init__(self, control: RunControl, *, waiting: Callable[[], None] = lambda: None) -> None:
        """`waiting` is called about once a second while there are too few groups."""
        self.control, self._waiting = control, waiting
        stage = control.run.configuration.stage
        assert isinstance(stage, RLConfig)
        self.stage = stage

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        """See GroupSource. Raises BatchTimeout, Interrupted, ArtifactError."""
        end = time.monotonic() + timeout
        asked = time.monotonic()
        while True:
            ids = survives_restart(self._assign)(step)
            if ids is not None:
                return self._load(ids)
            if time.monotonic() > end:
                raise BatchTimeout(
                    f"step {step}: fewer than {self.stage.groups_per_step} groups were accepted within {timeout:g} s; "
                    f"it waits for prompts {list(self.waits_for)}; look at the run's infra events and at the health page "
                    "for rollout workers and inference"
                )
            time.sleep(POLL_SECONDS)
            if time.monotonic() - asked > 1.0:
                asked = time.monotonic()
                self._waiting()
                if self.control.should_stop():
                    raise Interrupted(f"stopped while waiting for the batch of step {step}")

    def flow(self) -> Mapping[str, float]:
        """See GroupSource."""
        return survives_restart(scheduling.flow)(self.control.run)

    @transaction.atomic
    def _assign(self, step: int) -> list[int] | None:
        """Group ids of the step, recorded now if they were not yet; None while there are too few."""
        run = self.control.run
        recorded = TrainBatch.objects.filter(run=run, step=step).values_list("group_ids", flat=True).first()
        if recorded is not None:
            return list(recorded)
        places = scheduling.places(run)
        choice = choose(
            [place for place, _ in places],
            step=step,
            groups_per_step=self.stage.groups_per_step,
            window=self.stage.window_groups,
            lag_limit=self.stage.lag_limit,
        )
        self.waits_for = choice.waits_for
        if choice.batch is None:
            return None
        key = {place.prompt: pk for place, pk in places}
        accepted = [key[prompt] for prompt in choice.batch]
        self.control.fence()
        rollouts.consume(run=run, group_ids=accepted, step=step)
        services.record_batch(run=run, step=step, group_ids=accepted)
        return accepted

    def _load(self, ids: list[int]) -> list[TrainGroup]:
        read = survives_restart(lambda: dict(Group.objects.filter(pk__in=ids).values_list("pk", "train_key")))
        keys = read()
        return [artifacts().get_model(keys[pk], TrainGroup) for pk in ids]


class DatabaseSink:
    """Where a stage reports: rows, events and hints."""

    def __init__(self, control: RunControl) -> None:
        self.control = control
        self.run = control.run
        self._pins: set[int] = set()
        self._home = threading.get_ident()
        self.engines = EngineWatch(deployment_name(self.run), self.event, self._in_store)
        self._meter = EngineMeter()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        survives_restart(run_metrics.record)(run=self.run, step=step, values={**values, **self._engine()})
        if self.run.kind == "rl":
            survives_restart(auditing.watch)(run=self.run)

    def streams(self, trained: Sequence[TrainedGroup]) -> None:
        """Keep what a step knew of each token beside the trajectories of its groups (the token lens reads it)."""
        survives_restart(lens.keep)(run=self.run, trained=trained)

    def _engine(self) -> dict[str, float]:
        """What the inference server says of its last seconds; nothing while it restarts."""
        seen = self.engines.look() if self.run.kind == "rl" else None
        return self._meter.metrics(*seen) if seen else {}

    def progress(self, done: int, total: int) -> None:
        survives_restart(services.set_progress)(run=self.run, step=done, total=total)

    def phase(self, text: str) -> None:
        """What the stage does now, in words."""
        survives_restart(services.set_progress)(run=self.run, phase=text)

    def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
        """Also from the thread that publishes, at once: rollouts are admitted by it while the trainer computes."""
        self.engines.published(version, digest)
        try:
            survives_restart(self._version_published)(version)
            if values:
                survives_restart(run_metrics.record)(run=self.run, step=version, values=values)
        finally:
            if threading.get_ident() != self._home:
                connections.close_all()  # of a thread that may be gone before another query

    @transaction.atomic
    def _version_published(self, version: int) -> None:
        self.control.fence()
        services.record_version(run=self.run, version=version)
        if self.run.kind == "rl":
            evaluation = evals.for_version(run=self.run, version=version)
            if evaluation is not None and evaluation.state not in EVALUATION_FINAL:
                self._pin(evaluation.pk, version)
            self._unpin_finished()
            rollouts.pump(run_id=self.run.pk)

    def _in_store(self, version: int) -> bool:
        """Whether it is published, told of or not yet; as long as the store does not answer nothing is said against it."""
        from trainer.weights import WeightError, open_versions

        try:
            return version in open_versions(weights_folder(self.run)).all()
        except WeightError as error:
            log.info("no list of versions: %s", error)
            return True

    def _pin(self, evaluation_id: int, version: int) -> None:
        """Keep the version in the weight store until its evaluation has ended."""
        from trainer.weights import WeightStore

        WeightStore(weights_folder(self.run)).pin(f"evaluation-{evaluation_id}", version)
        self._pins.add(evaluation_id)

    def _unpin_finished(self) -> None:
        if not self._pins:
            return
        from trainer.weights import WeightStore

        ended = self.run.evaluations.filter(pk__in=self._pins, state__in=EVALUATION_FINAL).values_list("pk", flat=True)
        for pk in ended:
            WeightStore(weights_folder(self.run)).unpin(f"evaluation-{pk}")
            self._pins.discard(pk)

    def checkpoint_saved(self, step: int, path: Path, *, final: bool) -> None:
        survives_restart(self._checkpoint_saved)(step, path, final)

    @transaction.atomic
    def _checkpoint_saved(self, step: int, path: Path, final: bool) -> None:
        self.control.fence()
        policy = services.output_policy(self.run)
        checkpoint = record_checkpoint(policy=policy, version=step, path=path / "policy", final=final)
        kind = "final checkpoint" if final else "checkpoint"
        services.add_event(
            run=self.run,
            kind="checkpoint",
            step=step,
            message=f"{kind} of step {step} saved",
            data={"checkpoint": checkpoint.pk, "bytes": checkpoint.bytes},
        )

    def event(
        self, level: Literal["info", "warning", "error"], message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        kind = "note" if level == "info" else "alert"
        survives_restart(services.add_event)(run=self.run, kind=kind, level=level, message=message, data=data)

    def should_stop(self) -> bool:
        return self.control.should_stop()
