"""Heartbeat rows of the product's live processes, and what they use of their machines."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import psutil
from django.db import InterfaceError, OperationalError, connections
from django.utils import timezone

from composer_web.core.models import WorkerHeartbeat
from composer_web.core.queue import samples
from composer_web.core.queue.leases import identity
from composer_web.env import env
from trainer.usage import SAMPLE_SECONDS, Sampler

log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
SILENT_SECONDS = 20.0
"""A process is shown as silent after this long without a heartbeat."""


class Presence:
    """Thread that writes this process's heartbeat row until `stop`, and every 15 s a sample of what it uses."""

    def __init__(
        self,
        kind: str,
        *,
        name: str = "",
        detail: Callable[[], dict[str, Any]] = dict,
        runs: Callable[[], Sequence[int]] = list,
    ) -> None:
        """`runs` gives the runs that the process works for at the moment."""
        self.kind, self.name, self.detail, self.runs = kind, identity(kind, name), detail, runs
        self.started = timezone.now()
        self._sampler = Sampler(disk=env().data)
        self._sampled = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def start(self) -> Presence:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Delete the heartbeat row, so that a stopped process is not taken for a lost one."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def beat(self) -> None:
        WorkerHeartbeat.objects.update_or_create(
            name=self.name,
            defaults={
                "kind": self.kind,
                "pid": os.getpid(),
                "started_at": self.started,
                "beat_at": timezone.now(),
                "detail": self.detail(),
            },
        )

    def sample(self) -> None:
        """Record what this process uses now."""
        try:
            usage = self._sampler.sample()
        except (psutil.Error, OSError) as error:
            log.warning("CPU, memory and network were not measured: %s", error)
            return
        samples.record(worker=self.name, kind=self.kind, usage=usage, runs=self.runs())

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.beat()
                if time.monotonic() >= self._sampled + SAMPLE_SECONDS:
                    self._sampled = time.monotonic()
                    self.sample()
            except (OperationalError, InterfaceError) as error:
                log.warning("heartbeat not written: %s", str(error).strip())
            finally:
                connections.close_all()
            self._stop.wait(BEAT_SECONDS)
        try:
            WorkerHeartbeat.objects.filter(name=self.name, pid=os.getpid()).delete()
        except (OperationalError, InterfaceError) as error:
            log.warning("heartbeat row stays: %s", str(error).strip())
        finally:
            connections.close_all()


def forget_dead(*, older_than: timedelta = timedelta(hours=1)) -> int:
    return WorkerHeartbeat.objects.filter(beat_at__lt=timezone.now() - older_than).delete()[0]
