"""Detectors of the installation: disk space and processes that fell silent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from django.urls import reverse

from composer_web.core.detectors import Detector, Insight, register
from composer_web.core.queue import overview
from composer_web.env import env
from composer_web.system.health import LOW_DISK_BYTES

LOW_SHARE = 0.05


def low_disk() -> Iterator[Insight]:
    """The disk of the product's data is nearly full. Checkpoints and trajectories fail when it is."""
    usage = shutil.disk_usage(env().data)
    if usage.free < LOW_DISK_BYTES or usage.free < LOW_SHARE * usage.total:
        yield Insight(
            "disk",
            "Low disk space",
            f"{usage.free / 2**30:.1f} of {usage.total / 2**30:.0f} GiB are free below {env().data}",
            "Delete old checkpoints and exports, or move the data to a larger disk.",
            reverse("ops:system"),
        )


def offline_workers() -> Iterator[Insight]:
    """A process stopped reporting and no other of its kind took its place."""
    for worker in overview.offline():
        yield Insight(
            f"worker:{worker.name}"[:120],
            "Process offline",
            f"the {worker.kind} process {worker.name} has not reported since {worker.beat_at:%H:%M:%S} UTC",
            "The supervisor restarts it; read its log if it stays offline.",
            reverse("ops:system"),
        )


def install() -> None:
    """Register both. Called once, by `AppConfig.ready()`."""
    for name, title, look in (
        ("low-disk", "Low disk space", low_disk),
        ("worker-offline", "Process offline", offline_workers),
    ):
        register(Detector(name, title, " ".join((look.__doc__ or "").split()), "high", look))
