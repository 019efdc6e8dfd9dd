"""CPU, memory, network, disk and GPU use over time, as the API asks for it and gives it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from ninja import Schema
from pydantic import AwareDatetime, Field

from composer_web.core.errors import UserError
from composer_web.core.queue import usage
from composer_web.core.queue.usage import Source
from trainer.usage import SAMPLE_SECONDS

HOUR = timedelta(hours=1)
POINTS, MAX_POINTS = 500, 2000


class Asked(Schema):
    """A range of time and how finely it is resolved."""

    since: AwareDatetime | None = Field(default=None, description="Begin, with its time zone: 2026-01-31T12:00:00Z")
    until: AwareDatetime | None = Field(default=None, description="End; now by default")
    resolution: float | None = Field(
        default=None,
        ge=SAMPLE_SECONDS,
        description="Seconds that a point covers at least; empty: for 500 points a line",
    )

    def range(self, *, first: datetime | None = None, last: datetime | None = None) -> tuple[datetime, datetime, float]:
        """Begin and end, by default `first` and `last`, else the last hour; and the resolution. Raises UserError."""
        end = self.until or last or timezone.now()
        begin = self.since or first or end - HOUR
        if begin >= end:
            raise UserError(
                "since", f"since: {begin.isoformat()} is not before {end.isoformat()}; give an earlier time"
            )
        seconds = (end - begin).total_seconds()
        resolution = self.resolution or max(SAMPLE_SECONDS, seconds / POINTS)
        if (points := seconds / resolution) > MAX_POINTS:
            raise UserError(
                "resolution",
                f"resolution: {resolution:g} s makes {points:.0f} points of a line, and {MAX_POINTS} is the most; "
                f"ask for {math.ceil(seconds / MAX_POINTS)} s or more, or for a shorter range",
            )
        return begin, end, resolution


class SourceOut(Schema):
    worker: str
    kind: str
    host: str
    gpus: int


class PointOut(Schema):
    at: datetime = Field(description="Time of the newest sample in it")
    low: float
    high: float
    mean: float
    count: int = Field(description="Samples in it")


class UsageOut(Schema):
    since: datetime
    until: datetime
    resolution: float
    known: bool = Field(
        description="Of a run: its workers said that they worked for it; otherwise they are all that reported meanwhile"
    )
    workers: list[SourceOut]
    series: dict[str, list[PointOut]] = Field(
        description="`measure/worker` (cpu in cores, memory in bytes), `measure/host` (host_cpu and host_memory as shares; "
        "received, sent, disk_read and disk_written in bytes per second), `measure/host index` (gpu and gpu_memory as shares, "
        "gpu_power in watts)"
    )


def usage_out(
    found: Sequence[Source],
    *,
    first: datetime,
    last: datetime,
    resolution: float,
    run: int | None = None,
    known: bool = True,
) -> dict[str, Any]:
    """Every line of these workers over the range. One query."""
    rows = usage.series(
        [line.key for line in usage.lines(found)],
        workers=[one.worker for one in found],
        origin=first,
        last=(last - first).total_seconds(),
        resolution=resolution,
        run=run,
    )
    series = {
        key: [
            {"at": first + timedelta(seconds=p.seconds), "low": p.low, "high": p.high, "mean": p.mean, "count": p.count}
            for p in points
        ]
        for key, points in rows.items()
    }
    return {
        "since": first,
        "until": last,
        "resolution": resolution,
        "known": known,
        "workers": list(found),
        "series": series,
    }
