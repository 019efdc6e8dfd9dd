"""The part of a Celery worker that owns a trainer process: claims a run, starts its trainer, keeps the lease, wakes it.

A worker trains one run at a time. While it does, it takes nothing from the queues of its pools, so that other workers get
what waits there; its own queue stays open. No torch is imported here: the trainer process has the model, and ends with its
run.

Several workers on one machine need names of their own (`--hostname train-1@%h`): the name is the worker's place, which only
one process has at a time. A worker that was killed leaves its place once its trainer process is gone, too.
"""

from __future__ import annotations

import fcntl
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from django.db import connections

from composer_web.core.database import DatabaseGone, survives_restart
from composer_web.core.queue import leases
from composer_web.env import REPOSITORY
from composer_web.runs.messages import lease_name
from composer_web.runs.models import Run, RunState
from composer_web.runs.paths import place_lock, ranks_lock
from composer_web.runs.train_queues import pool_title, worker_queue
from composer_web.runs.training import claims
from composer_web.runs.training.wakes import LOOK, STOP

log = logging.getLogger(__name__)

TRAINER: tuple[str, ...] = (sys.executable,)
"""Command that runs `manage.py trainer`."""
WATCH_SECONDS = 0.2
PLACE_SECONDS = 30.0
"""Seconds to wait for an earlier process of the same name to release its lock."""
GOODBYE_SECONDS = 20.0
"""Seconds that a trainer has to finish its step and checkpoint when its worker is stopped."""
CANCEL_SECONDS = 4.0
"""Seconds that the trainer of a cancelled run has to end by itself. Nothing of it is kept, so its memory is freed."""


class Busy(Exception):
    """This worker is training a run or stopping. Another worker must take the message."""


class PlaceTaken(SystemExit):
    """Another train worker of this name runs on this machine."""


@dataclass(slots=True)
class Training:
    """A claimed run and its trainer process, once started."""

    run_id: int
    held: leases.Held
    process: subprocess.Popen[bytes] | None = None
    writing: threading.Lock = field(default_factory=threading.Lock)
    cancelled_at: float | None = None
    """When this worker heard that the run is cancelled (`time.monotonic`)."""

    def tell(self, line: str) -> None:
        """Send one line to the trainer. Does nothing if it has ended."""
        with self.writing:
            if self.process is None or self.process.stdin is None:
                return
            try:
                self.process.stdin.write(f"{line}\n".encode())
                self.process.stdin.flush()
            except (BrokenPipeError, BlockingIOError, ValueError) as error:
                log.warning("run %d: its trainer does not hear %r: %s", self.run_id, line, error)


class TrainWorker:
    def __init__(self, name: str, queues: Sequence[str]) -> None:
        """`queues` are the queues of the worker's pools."""
        self.name = name
        self.owner = leases.identity("train", name)
        self.queue = worker_queue(self.owner)
        self.queues = list(queues)
        self.open: Callable[[bool], None] = lambda _: None
        """Starts or stops consuming from the pools' queues."""
        self._stopping = threading.Event()
        self._training: Training | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._place: IO[str] | None = None

    # -- the place ----------------------------------------------------------------------------------------------------

    def occupy(self, *, seconds: float = PLACE_SECONDS) -> None:
        """Prove that no other process of this machine has our name. Raises PlaceTaken.

        The trainer process inherits the lock, and its ranks have one of their own (torchrun passes no open files on), so that
        a place is free when all of them are gone.
        """
        end = time.monotonic() + seconds
        place = _locked(place_lock(self.queue), end)
        if place is None:
            raise PlaceTaken(
                f"error: a train worker named {self.owner} runs already; stop it, or give this one another name: "
                "--hostname NAME@%h"
            )
        ranks = _locked(ranks_lock(self.queue), end)
        if ranks is None:
            place.close()
            raise PlaceTaken(
                f"error: ranks that an earlier train worker named {self.owner} started still run; look for processes of "
                "trainer.distributed.worker, and end those that hang"
            )
        ranks.close()
        self._place = place
        if runs := survives_restart(claims.give_up_all)(owner=self.owner):
            log.warning("put back after an earlier process of this worker was killed: runs %s", runs)

    def vacate(self) -> None:
        if self._place is not None:
            self._place.close()
            self._place = None

    # -- messages -----------------------------------------------------------------------------------------------------

    def take(self, run_id: int) -> bool:
        """Claim the run and start its trainer. False if there is nothing to do. Raises Busy, DatabaseGone."""
        with self._lock:
            if self._stopping.is_set() or self._training is not None:
                raise Busy(f"{self.owner} trains run {self.current}" if self.current else f"{self.owner} stops")
            held = survives_restart(claims.claim)(run_id=run_id, owner=self.owner)
            if held is None:
                log.info("run %d: nothing to do here", run_id)
                return False
            leases.keeper.keep(held)
            training = self._training = Training(run_id, held)
            self.open(False)
        try:
            training.process = self._start(training)
        except OSError:
            self._ended(training, crashed=True)
            raise
        self._thread = threading.Thread(target=self._watch, args=(training,), name="trainer-watch", daemon=True)
        self._thread.start()
        if self._stopping.is_set():
            training.tell(STOP)
        return True

    def wake(self, run_id: int, line: str) -> None:
        """Pass a line to the run's trainer. Does nothing if this worker does not train the run."""
        training = self._training
        if training is None or training.run_id != run_id:
            log.info("run %d is not trained here: %s", run_id, line)
            return
        if line == LOOK and training.cancelled_at is None and survives_restart(_is_cancelled)(run_id):
            training.cancelled_at = time.monotonic()
        training.tell(line)

    # -- the trainer process ------------------------------------------------------------------------------------------

    @property
    def current(self) -> int | None:
        training = self._training
        return training.run_id if training else None

    def detail(self) -> dict[str, Any]:
        """Details for the heartbeat: pools, the current run and its process."""
        training = self._training
        process = training.process if training else None
        return {
            "pools": [pool_title(queue) for queue in self.queues],
            "run": training.run_id if training else None,
            "trainer_pid": process.pid if process else None,
        }

    def _start(self, training: Training) -> subprocess.Popen[bytes]:
        held = training.held
        command = [*TRAINER, str(REPOSITORY / "manage.py"), "trainer", str(training.run_id)]
        return subprocess.Popen(
            [*command, "--owner", held.owner, "--token", str(held.token)],
            stdin=subprocess.PIPE,
            cwd=REPOSITORY,
            start_new_session=True,  # signals of the worker's group are the worker's; it says when to stop
            pass_fds=[self._place.fileno()] if self._place else [],
        )

    def _watch(self, training: Training) -> None:
        assert training.process is not None
        while True:
            try:
                code = training.process.wait(WATCH_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if training.held.lost.is_set():
                    log.warning("run %d went to another worker; its trainer here is killed", training.run_id)
                    training.process.kill()
                elif training.cancelled_at and time.monotonic() > training.cancelled_at + CANCEL_SECONDS:
                    log.info("run %d is cancelled; its trainer is killed in the middle of a step", training.run_id)
                    training.process.kill()
        log.info("the trainer of run %d ended with status %d", training.run_id, code)
        self._ended(training, crashed=code != 0 and training.cancelled_at is None)

    def _ended(self, training: Training, *, crashed: bool) -> None:
        leases.keeper.drop(training.held)
        try:
            survives_restart(claims.give_up)(held=training.held, run_id=training.run_id, crashed=crashed)
        except DatabaseGone as error:
            log.error("the lease of %s expires by itself: %s", lease_name(training.run_id), error)
        finally:
            connections.close_all()
        with self._lock:
            self._training = None
            if not self._stopping.is_set():
                self.open(True)

    # -- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more messages and have the trainer stop after its step. Does not wait."""
        self._stopping.set()
        if (training := self._training) is not None:
            training.tell(STOP)

    def join(self, *, seconds: float = GOODBYE_SECONDS) -> None:
        """Wait for the trainer to end. Kill it after the timeout."""
        thread, training = self._thread, self._training
        if thread is None or training is None:
            return
        thread.join(seconds)
        if thread.is_alive() and training.process is not None:
            log.warning("the trainer of run %d did not stop within %g s and is killed", training.run_id, seconds)
            training.process.kill()
            thread.join(seconds)


def _locked(path: Path, end: float) -> IO[str] | None:
    """The file, locked for this process alone. None when it is not to be had until `end`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() > end:
                file.close()
                return None
            time.sleep(WATCH_SECONDS)


def _is_cancelled(run_id: int) -> bool:
    return Run.objects.filter(pk=run_id, state=RunState.CANCELLED).exists()


_here: TrainWorker | None = None


def here() -> TrainWorker:
    """The train worker of this process."""
    assert _here is not None, "this Celery worker consumes no queue of training"
    return _here


def install(worker: TrainWorker) -> TrainWorker:
    """Make `worker` the train worker of this process."""
    global _here
    _here = worker
    return worker


def installed() -> TrainWorker | None:
    return _here
