"""Measures this process, its descendants and its host."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from trainer.usage import nvidia
from trainer.usage.measured import Usage

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 15.0
"""Seconds between two measurements of a worker."""
LOOPBACK = "lo"


@dataclass(frozen=True)
class _Counters:
    """Counters that only grow; two readings give a rate."""

    at: float
    cpu_seconds: float
    host_busy: float
    host_total: float
    received: int
    sent: int
    disk_read: int
    disk_written: int


class Sampler:
    """Each `sample` covers the time since the one before, the first the time since the sampler was made."""

    def __init__(self, *, disk: Path | None = None) -> None:
        """`disk`: a folder on the file system whose fill is measured."""
        self._disk = disk
        self._process = psutil.Process()
        self._before = self._count(self._family())

    def sample(self) -> Usage:
        family = self._family()
        before, now = self._before, self._count(family)
        self._before = now
        seconds = max(now.at - before.at, 1e-6)
        memory = psutil.virtual_memory()
        cores = psutil.cpu_count() or 1
        fill = psutil.disk_usage(str(self._disk)) if self._disk and self._disk.exists() else None

        def rate(name: str) -> float:
            return float(max(0, getattr(now, name) - getattr(before, name)) / seconds)

        host_total = now.host_total - before.host_total
        return Usage(
            host=socket.gethostname(),
            pid=os.getpid(),
            # Descendants that ended without being waited for take their seconds with them: never less than nothing.
            cpu=rate("cpu_seconds"),
            memory=sum(_resident(one) for one in family),
            host_cpu=min(1.0, max(0.0, (now.host_busy - before.host_busy) / host_total)) if host_total > 0 else 0.0,
            host_cores=cores,
            host_memory=memory.total - memory.available,
            host_memory_total=memory.total,
            received=rate("received"),
            sent=rate("sent"),
            disk_read=rate("disk_read"),
            disk_written=rate("disk_written"),
            disk_used=fill.used if fill else None,
            disk_total=fill.total if fill else None,
            gpus=nvidia.gpus(),
        )

    def _family(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _count(self, family: list[psutil.Process]) -> _Counters:
        times = psutil.cpu_times()
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # they are in `user`, too
        cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != LOOPBACK]
        disk = psutil.disk_io_counters()  # None in some containers
        return _Counters(
            at=time.monotonic(),
            cpu_seconds=sum(_cpu_seconds(one) for one in family),
            host_busy=total - times.idle - getattr(times, "iowait", 0.0),
            host_total=total,
            received=sum(card.bytes_recv for card in cards),
            sent=sum(card.bytes_sent for card in cards),
            disk_read=disk.read_bytes if disk else 0,
            disk_written=disk.write_bytes if disk else 0,
        )


class BackgroundSampler:
    """Thread that measures now and then, so that whoever asks waits for nothing."""

    def __init__(self, *, seconds: float = SAMPLE_SECONDS) -> None:
        self.latest: Usage | None = None
        """None until the first interval is over."""
        self._seconds, self._stop = seconds, threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread after the measurement in progress. Does not wait."""
        self._stop.set()

    def _run(self) -> None:
        sampler = Sampler()
        while not self._stop.wait(self._seconds):
            try:
                self.latest = sampler.sample()
            except (psutil.Error, OSError) as error:
                log.warning("CPU, memory and network were not measured: %s", error)


def _cpu_seconds(process: psutil.Process) -> float:
    """With those of descendants that it waited for, so that short-lived processes count."""
    try:
        times = process.cpu_times()
    except psutil.Error:  # it ended meanwhile
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
