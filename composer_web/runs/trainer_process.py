"""The trainer process: takes one run at a time under a lease, runs its stage here, reports how it ended.

A killed trainer loses its lease within seconds (a restart under the same name takes over at once) and the run goes
on from the last checkpoint, on exactly the batches that were recorded.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import transaction
from django.db.models import Case, IntegerField, Value, When

from composer_web.env import env
from composer_web.ops import disk, gpus, leases
from composer_web.ops.database import DatabaseGone, survives_restart
from composer_web.ops.errors import UserError
from composer_web.policies.selectors import resolve
from composer_web.runs import services
from composer_web.runs.models import Run, RunState
from composer_web.runs.stages import run_stage
from composer_web.runs.trainer_bridge import DatabaseSink, Interrupted, RunControl
from trainer.stages.base import StageError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
MAX_RECOVERIES = 10
"""A run whose trainer was lost this often is given up: something in it kills the process."""


class AlreadyRunning(Exception):
    """Another trainer process of this name lives on this machine."""


class TrainerProcess:
    def __init__(self, name: str) -> None:
        self.owner = leases.identity("trainer", name)
        self.lock_file = env().data / "run" / f"trainer-{name}.lock"
        self.stopping = threading.Event()
        self.current: int | None = None

    @contextmanager
    def only_one(self) -> Iterator[None]:
        """Proves that no other process of this machine uses our name; the kernel frees it with the process."""
        self.lock_file.parent.mkdir(parents=True, exist_ok=True)
        with self.lock_file.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise AlreadyRunning(
                    f"a trainer named {self.owner} runs already; stop it or give another --name"
                ) from error
            yield

    def run_for_ever(self, *, once: bool = False) -> None:
        """Take runs until `stopping`; with `once`, return when there is none left."""
        with self.only_one():
            while not self.stopping.is_set():
                try:
                    claimed = survives_restart(self.claim)()
                except DatabaseGone as error:
                    log.error("%s; the trainer goes on asking", error)
                    continue
                if claimed is not None:
                    self.execute(*claimed)
                elif once:
                    return
                else:
                    self.stopping.wait(POLL_SECONDS)

    @transaction.atomic
    def claim(self) -> tuple[Run, leases.Held] | None:
        """A run that wants a trainer: one that ours or a lost one left running, else the oldest queued one that the quotas
        have GPUs for."""
        order = Case(When(state=RunState.QUEUED, then=Value(1)), default=Value(0), output_field=IntegerField())
        wanted = Run.objects.filter(state__in=[RunState.RUNNING, RunState.PAUSING, RunState.QUEUED])
        for run in wanted.order_by(order, "queued_at", "pk"):
            if run.state == RunState.QUEUED and not gpus.admitted(run):
                continue
            held = leases.take(f"run:{run.pk}", owner=self.owner, seconds=env().trainer_lease_seconds, takeover=True)
            if held is not None:
                return run, held
        return None

    def execute(self, run: Run, held: leases.Held) -> None:
        """Run the stage of a claimed run and record how it ended. Never raises for a failed stage."""
        leases.keeper.keep(held)
        self.current = run.pk
        try:
            self._execute(run, held)
        except leases.LeaseLost as error:
            log.warning("run %d: %s", run.pk, error)
        except DatabaseGone as error:
            log.error("run %d stays as it is: %s", run.pk, error)
        finally:
            self.current = None
            leases.keeper.drop(held)
            try:
                survives_restart(leases.release)(held)
            except DatabaseGone as error:
                log.error("the lease of run %d expires by itself: %s", run.pk, error)

    def _execute(self, run: Run, held: leases.Held) -> None:
        run.refresh_from_db()
        if run.state == RunState.PAUSING:
            survives_restart(services.mark_paused)(run=run)
            return
        if run.recoveries >= MAX_RECOVERIES:
            cause = f"its trainer process was lost {run.recoveries} times; see the trainer's log, then resume it"
            survives_restart(services.mark_failed)(run=run, cause=cause)
            return
        survives_restart(services.mark_running)(run=run, owner=self.owner)
        control = RunControl(run, held, stopping=self.stopping.is_set)
        sink = DatabaseSink(control)
        try:
            stopped = run_stage(run=run, control=control, sink=sink, policy_dir=self._starting_weights(run))
        except (leases.LeaseLost, DatabaseGone):
            raise
        except Interrupted:
            stopped = True
        except Exception as error:
            if full := disk.why_full(error):
                log.error("run %d pauses: %s", run.pk, full)
                self._no_room(run, full)
                return
            if isinstance(error, StageError | UserError):
                self._failed(run, str(error))
                return
            log.exception("run %d failed", run.pk)
            self._failed(run, f"{type(error).__name__}: {error}")
            return
        self._ended(run, control, stopped=stopped)

    def _starting_weights(self, run: Run) -> Path:
        return resolve(f"{run.policy_in.name}@{run.policy_in_version}").path

    def _no_room(self, run: Run, cause: str) -> None:
        """Nothing is lost: the recorded batches are trained again from the last checkpoint once it is resumed."""
        survives_restart(services.pause_for)(run=run, cause=cause)
        run.refresh_from_db()
        if run.state == RunState.PAUSING:
            survives_restart(services.mark_paused)(run=run)

    def _failed(self, run: Run, cause: str) -> None:
        run.refresh_from_db()
        if run.state in (RunState.RUNNING, RunState.PAUSING):
            survives_restart(services.mark_failed)(run=run, cause=cause)

    def _ended(self, run: Run, control: RunControl, *, stopped: bool) -> None:
        state = control.state()
        if control.held.lost.is_set():
            log.warning("run %d went to another trainer", run.pk)
        elif not stopped and state in (RunState.RUNNING, RunState.PAUSING):
            survives_restart(services.mark_finished)(run=run)
        elif stopped and state == RunState.PAUSING:
            survives_restart(services.mark_paused)(run=run)
        # Cancelled: nothing to write. Running: this process stops and the next one goes on.
