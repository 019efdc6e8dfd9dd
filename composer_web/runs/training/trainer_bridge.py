"""Bridge between a training stage and the control plane over the ORM: accepted groups in, results out.

Implements `trainer.stages.base.GroupSource` and `StageSink`. Every call survives a restart of Postgres. Writes are
rejected once the lease of the run is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from django.db import connections, transaction

from composer_web.core import disk
from composer_web.core.artifacts import MAX_GROUP_BYTES, artifacts
from composer_web.core.database import survives_restart
from composer_web.core.queue import leases
from composer_web.evals import services as evals
from composer_web.evals.selectors import FINAL as EVALUATION_FINAL
from composer_web.policies.services import record_checkpoint
from composer_web.rollouts.dispatch import batches, findings, scheduling
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.rollouts.trajectory import lens
from composer_web.runs import metrics as run_metrics
from composer_web.runs import services
from composer_web.runs.detectors import insights
from composer_web.runs.engine_lag import allowed_lag
from composer_web.runs.models import Run, RunState
from composer_web.runs.paths import deployment_name, weights_folder
from composer_web.runs.training.clusters import EngineMeter
from composer_web.runs.training.engine_watch import EngineWatch
from composer_web.runs.training.wakes import Wakes
from trainer.config import RLConfig
from trainer.errors import BatchTimeout, StageError
from trainer.learning.token_export import TrainedGroup
from trainer.types import TrainGroup

log = logging.getLogger(__name__)

T = TypeVar("T")

WAITING_SECONDS = 5.0
"""Interval at which a waiting trainer checks the disk and the engine. It queries Postgres when it is woken."""


class Interrupted(StageError):
    """The run was paused or cancelled, this process is stopping, or another trainer has the lease."""


class RunControl:
    """Tells the stage whether to continue. Checked between steps, and when a waiting trainer is woken."""

    def __init__(self, run: Run, held: leases.Held, *, wakes: Wakes | None = None) -> None:
        """Without `wakes`, only the deadline ends a wait."""
        self.run, self.held, self.wakes = run, held, wakes or Wakes()

    def should_stop(self) -> bool:
        """Raises DiskFull if there is no room for another step."""
        disk.require_space()
        return self.held.lost.is_set() or self.wakes.stopping() or self.state() != RunState.RUNNING

    def state(self) -> str:
        return survives_restart(lambda: Run.objects.values_list("state", flat=True).get(pk=self.run.pk))()

    def fence(self) -> None:
        """Call it inside a transaction. Raises LeaseLost."""
        leases.require(self.held)

    def wait_for(
        self, look: Callable[[], T | None], *, timeout: float, what: str, waiting: Callable[[], None] = lambda: None
    ) -> T | None:
        """What `look` finds: now, or after a wake-up within `timeout` seconds; None at the deadline.

        `waiting` is called every few seconds of the wait. Raises Interrupted, and what `look` raises.
        """
        end = time.monotonic() + timeout
        while True:
            self.wakes.clear()
            found = look()
            if found is not None:
                return found
            if self.should_stop():
                raise Interrupted(f"stopped while waiting for {what}")
            while not self.wakes.wait(min(WAITING_SECONDS, end - time.monotonic())):
                if time.monotonic() >= end:
                    return look()
                disk.require_space()
                waiting()


class DatabaseGroupSource:
    """Accepted groups of a run, assigned to steps in windowed FIFO order."""

    def __init__(self, control: RunControl, *, waiting: Callable[[], None] = lambda: None) -> None:
        """`waiting` is called every few seconds while there are too few groups."""
        self.control, self._waiting = control, waiting
        stage = control.run.configuration.stage
        assert isinstance(stage, RLConfig)
        self.stage = stage

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        """See GroupSource. Raises BatchTimeout, Interrupted, LeaseLost, ArtifactError."""
        run, held = self.control.run, self.control.held

        def look() -> list[int] | None:
            if (ids := batches.recorded(run, step)) is None and batches.assign(run_id=run.pk, held=held):
                ids = batches.recorded(run, step)
            return ids

        survives_restart(batches.want)(run=run, held=held, step=step)
        ids = self.control.wait_for(
            survives_restart(look), timeout=timeout, what=f"the batch of step {step}", waiting=self._waiting
        )
        if ids is None:
            raise BatchTimeout(
                f"step {step}: fewer than {self.stage.groups_per_step} groups were accepted within {timeout:g} s; "
                f"it waits for prompts {list(batches.choice(run, self.stage, step)[0].waits_for)}; look at the run's infra "
                "events and at the health page for rollout workers and inference"
            )
        survives_restart(batches.taken)(run=run, step=step)
        return self._load(ids)

    def flow(self) -> Mapping[str, float]:
        """See GroupSource."""
        return survives_restart(scheduling.flow)(self.control.run)

    def _load(self, ids: list[int]) -> list[TrainGroup]:
        read = survives_restart(lambda: dict(Group.objects.filter(pk__in=ids).values_list("pk", "train_key")))
        keys = read()
        return [artifacts().get_model(keys[pk], TrainGroup, max_bytes=MAX_GROUP_BYTES) for pk in ids]


class DatabaseSink:
    """Reports of a stage as rows, events and hints."""

    def __init__(self, control: RunControl) -> None:
        self.control = control
        self.run = control.run
        self._pins: set[int] = set()
        self._home = threading.get_ident()
        self.engines = EngineWatch(deployment_name(self.run), self.event, self._in_store, max_lag=allowed_lag(self.run))
        self._meter = EngineMeter()
        self._reported: int | None = None

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Record a step's metrics. A second call for the same step adds values known after its checkpoint; the
        engine is queried once."""
        first, self._reported = step != self._reported, step
        survives_restart(run_metrics.record)(
            run=self.run, step=step, values={**values, **(self._engine() if first else {})}
        )
        if first and self.run.kind == "rl":
            survives_restart(findings.watch)(run=self.run)
            survives_restart(insights.watch)(run=self.run)

    def streams(self, trained: Sequence[TrainedGroup]) -> None:
        """Store per-token training data beside the trajectories of the step's groups, for the token lens."""
        survives_restart(lens.keep)(run=self.run, trained=trained)

    def _engine(self) -> dict[str, float]:
        """Metrics of the inference server since the last step. Empty while it restarts."""
        seen = self.engines.look() if self.run.kind == "rl" else None
        return self._meter.metrics(*seen) if seen else {}

    def progress(self, done: int, total: int) -> None:
        survives_restart(services.set_progress)(run=self.run, step=done, total=total)

    def phase(self, text: str) -> None:
        """Record the current activity of the stage as text."""
        log.info("run %d: %s", self.run.pk, text)
        survives_restart(services.set_progress)(run=self.run, phase=text)

    def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
        """Also called by the publishing thread, immediately: it admits rollouts while the trainer computes."""
        self.engines.published(version, digest)
        try:
            survives_restart(self._version_published)(version, digest)
            if values:
                survives_restart(run_metrics.record)(run=self.run, step=version, values=values)
        finally:
            if threading.get_ident() != self._home:
                connections.close_all()  # of a thread that may be gone before another query

    @transaction.atomic
    def _version_published(self, version: int, digest: str) -> None:
        self.control.fence()
        services.record_version(run=self.run, version=version)
        if version > 0:
            services.record_trained(run=self.run, step=version, digest=digest, token=self.control.held.token)
        if self.run.kind == "rl":
            evaluation = evals.for_version(run=self.run, version=version)
            if evaluation is not None and evaluation.state not in EVALUATION_FINAL:
                self._pin(evaluation.pk, version)
            self._unpin_finished()
            rollouts.pump(run_id=self.run.pk)

    def _in_store(self, version: int) -> bool:
        """Whether the version is in the weight store, reported or not. Assumed true while the store does not answer."""
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
        Run.objects.filter(pk=self.run.pk).update(lost_in_a_row=0)
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
