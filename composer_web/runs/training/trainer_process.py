"""The trainer process: runs the stage of one claimed run and records how it ended.

A train worker claims the run, starts this process, and keeps the lease (`train_worker.py`). What is written here carries the
lease's fencing token. A killed trainer loses nothing: the next one loads the last checkpoint and trains on exactly the
batches that were recorded.
"""

from __future__ import annotations

import logging
from pathlib import Path

from composer_web.core import disk
from composer_web.core.database import DatabaseGone, survives_restart
from composer_web.core.errors import UserError
from composer_web.core.queue import leases
from composer_web.env import env
from composer_web.policies.selectors import resolve
from composer_web.runs import services
from composer_web.runs.detectors import insights
from composer_web.runs.messages import lease_name
from composer_web.runs.models import Run, RunState
from composer_web.runs.training.stages import run_stage
from composer_web.runs.training.trainer_bridge import DatabaseSink, Interrupted, RunControl
from composer_web.runs.training.wakes import Wakes
from trainer.errors import RanksLost, StageError

log = logging.getLogger(__name__)


def train(*, run_id: int, owner: str, token: int, wakes: Wakes) -> bool:
    """Train a run that `owner` holds under this fencing token; False when its lease or Postgres was lost meanwhile.

    Never raises for a stage that failed: the run has the cause.
    """
    held = leases.Held(lease_name(run_id), owner, token, env().trainer_lease_seconds)
    try:
        _train(survives_restart(Run.objects.get)(pk=run_id), held, wakes)
    except leases.LeaseLost as error:
        log.warning("run %d: %s", run_id, error)
        return False
    except DatabaseGone as error:
        log.error("run %d stays as it is: %s", run_id, error)
        return False
    return True


def _train(run: Run, held: leases.Held, wakes: Wakes) -> None:
    control = RunControl(run, held, wakes=wakes)
    log.info("run %d: a trainer of %s begins after step %d", run.pk, held.owner, run.step)
    try:
        stopped = run_stage(run=run, control=control, sink=DatabaseSink(control), policy_dir=_starting_weights(run))
    except (leases.LeaseLost, DatabaseGone):
        raise
    except Interrupted:
        stopped = True
    except Exception as error:
        if full := _why_full(error):
            log.error("run %d pauses: %s", run.pk, full)
            pause_without_room(run, full)
        elif isinstance(error, StageError | UserError):
            _failed(run, str(error))
        else:
            log.exception("run %d failed", run.pk)
            _failed(run, f"{type(error).__name__}: {error}")
        return
    _ended(run, control, stopped=stopped)


def _why_full(error: Exception) -> str | None:
    """What to tell people when the disk is full; ranks that were lost cannot say, so the disk is asked."""
    if isinstance(error, RanksLost):
        try:
            disk.require_space()
        except disk.DiskFull as full:
            return str(full)
    return disk.why_full(error)


def _starting_weights(run: Run) -> Path:
    return resolve(f"{run.policy_in.name}@{run.policy_in_version}").whole()


def pause_without_room(run: Run, cause: str) -> None:
    """Pause the run. Nothing is lost: on resume, recorded batches are trained again from the last checkpoint."""
    survives_restart(services.pause_for)(run=run, cause=cause)
    run.refresh_from_db()
    if run.state == RunState.PAUSING:
        survives_restart(services.mark_paused)(run=run)


def _failed(run: Run, cause: str) -> None:
    run.refresh_from_db()
    if run.state in (RunState.RUNNING, RunState.PAUSING):
        survives_restart(services.mark_failed)(run=run, cause=cause)


def _ended(run: Run, control: RunControl, *, stopped: bool) -> None:
    state = control.state()
    if control.held.lost.is_set():
        log.warning("run %d went to another worker", run.pk)
    elif not stopped and state in (RunState.RUNNING, RunState.PAUSING):
        if cause := survives_restart(insights.nothing_trained)(run):
            survives_restart(services.mark_failed)(run=run, cause=cause)
        else:
            survives_restart(services.mark_finished)(run=run)
    elif stopped and state == RunState.PAUSING:
        survives_restart(services.mark_paused)(run=run)
    # Cancelled: nothing to write. Running: this process stops, and the worker puts the run back into its queue.
