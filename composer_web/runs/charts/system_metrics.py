"""CPU, memory, network, disk and GPU use of the workers of a run, as panels of its System tab."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone

from composer_web.core.queue import samples, usage
from composer_web.core.queue.usage import Line, Source
from composer_web.runs.models import RUN_LIVE, Run

MAX_LINES = 12
"""Workers and hosts of a panel: trainers first, then engines. The API has all."""
REFRESH_MS = 15_000
GIB = 1 << 30


@dataclass(frozen=True)
class Shown:
    """How a measure is drawn."""

    label: str
    unit: str
    scale: float = 1.0


MEASURES = {
    "cpu": Shown("", "cores"),
    "memory": Shown("", "GiB", GIB),
    "host_cpu": Shown("", "%"),
    "host_memory": Shown("", "%"),
    "received": Shown("received", "bytes/s"),
    "sent": Shown("sent", "bytes/s"),
    "disk_read": Shown("read", "bytes/s"),
    "disk_written": Shown("written", "bytes/s"),
    "gpu": Shown("", "%"),
    "gpu_memory": Shown("", "%"),
    "gpu_power": Shown("", "W"),
}
PANELS = (
    ("Process CPU", ("cpu",), "CPU cores that the process and its descendants use."),
    ("Process memory", ("memory",), "Resident memory of the process and its descendants."),
    ("Host CPU", ("host_cpu",), "Busy share of all cores of the host, whoever uses them."),
    ("Host memory", ("host_memory",), "Share of the host's memory that is not available to new work."),
    ("Network", ("received", "sent"), "Traffic of the host's network cards. The loopback does not count."),
    ("Disk", ("disk_read", "disk_written"), "What the host reads from its disks and writes to them."),
    ("GPU utilisation", ("gpu",), "Share of time in which a kernel ran, as nvidia-smi reports it."),
    ("GPU memory", ("gpu_memory",), "Share of the GPU's memory in use."),
    ("GPU power", ("gpu_power",), "Watts that the GPU draws."),
)


@dataclass(frozen=True)
class UsagePanel:
    """What partials/chart.html reads of a panel."""

    title: str
    meaning: str
    unit: str
    shown: tuple[str, ...]
    labels: tuple[str, ...]
    axis: str = "time"
    size: int = 1

    @property
    def name(self) -> str:
        return f"usage-{self.title.lower().replace(' ', '-')}"

    @property
    def every(self) -> int:
        return REFRESH_MS

    @property
    def series(self) -> str:
        return json.dumps([{"key": key, "label": label} for key, label in zip(self.shown, self.labels, strict=True)])


@dataclass(frozen=True)
class Window:
    """The time that a run has taken so far, and who reported in it."""

    first: datetime
    last: datetime
    sources: list[Source]
    known: bool
    """The workers said that they worked for this run. Otherwise they are all that reported meanwhile."""


def window(run: Run) -> Window | None:
    """None before the run started."""
    if run.started_at is None:
        return None
    first, last = run.started_at, run.finished_at or timezone.now()
    own = usage.sources(first=first, last=last, run=run.pk)
    if own:
        return Window(first, last, own, known=True)
    pool = [one for one in usage.sources(first=first, last=last) if one.kind in ("train", "engine", "rollout", "eval")]
    return Window(first, last, pool, known=False)


def panels(found: Sequence[Source]) -> list[UsagePanel]:
    """Panels with something to draw, of the first `MAX_LINES` workers."""
    found = found[:MAX_LINES]
    lines = usage.lines(found)
    single = len({one.host for one in found}) == 1
    made = []
    for title, measures, meaning in PANELS:
        mine = [line for line in lines if line.measure in measures]
        if mine:
            labels = tuple(_label(line, single=single) for line in mine)
            unit = MEASURES[measures[0]].unit
            made.append(UsagePanel(title, meaning, unit, tuple(line.key for line in mine), labels))
    return made


def _label(line: Line, *, single: bool) -> str:
    """Short where there is one host: `train 4711`, `GPU 0`, `received`."""
    word = MEASURES[line.measure].label
    if line.measure in usage.WORKER_MEASURES:
        kind, _, rest = line.subject.partition("@")
        host, _, name = rest.rpartition("/")
        return f"{kind} {name}" if single and host else line.subject
    host, _, index = line.subject.rpartition(" ")
    if line.measure in usage.GPU_MEASURES:
        return f"GPU {index}" if single else f"{host} GPU {index}"
    return word or line.subject if single else f"{line.subject} {word}".strip()


def charts(run: Run) -> dict[str, Any]:
    """Context of the System tab."""
    found = window(run)
    if found is None:
        return {"usage_panels": [], "usage_window": None}
    place = {"id": f"usage-{run.pk}", "name": run.name, "url": reverse("runs:usage", args=[run.pk])}
    return {
        "usage_panels": panels(found.sources),
        "usage_window": found,
        "usage_left_out": max(0, len(found.sources) - MAX_LINES),
        "chart_runs": json.dumps([place]),
        "chart_topics": samples.TOPIC if run.state in RUN_LIVE else "",
    }


def points(
    run: Run, keys: Sequence[str], *, count: int, first: float | None, last: float | None
) -> dict[str, list[dict[str, float]]]:
    """Rows for js/chart.js, in the units of the panels; seconds count from the start of the run."""
    found = window(run)
    if found is None:
        return {key: [] for key in keys}
    seconds = (found.last - found.first).total_seconds()
    low, high = max(0.0, first or 0.0), min(seconds, seconds if last is None else last)
    rows = usage.series(
        keys,
        workers=[one.worker for one in found.sources],
        origin=found.first,
        first=low,
        last=high,
        resolution=(high - low) / max(1, count),
        run=run.pk if found.known else None,
    )
    scales = {key: MEASURES[measure].scale if (measure := key.partition("/")[0]) in MEASURES else 1.0 for key in keys}
    return {
        key: [
            {"x": p.seconds, "min": p.low / scales[key], "max": p.high / scales[key], "last": p.mean / scales[key]}
            for p in row
        ]
        for key, row in rows.items()
    }
