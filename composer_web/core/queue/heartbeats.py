"""Heartbeat rows of the product's live processes, for the health page and the reconciler."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import InterfaceError, OperationalError, connections
from django.utils import timezone

from composer_web.core.models import WorkerHeartbeat
from composer_web.core.queue.leases import identity

log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
SILENT_SECONDS = 20.0
"""A process is shown as silent after this long without a heartbeat."""


class Presence:
    """Thread that writes this process's heartbeat row until `stop`."""

    def __init__(self, kind: str, *, name: str = "", detail: Callable[[], dict[str, Any]] = dict) -> None:
        self.kind, self.name, self.detail = kind, identity(kind, name), detail
        self.started = timezone.now()
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

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.beat()
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
