"""Health as the API gives it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from trainer.usage import GpuUsage


class CheckOut(Schema):
    name: str
    ok: bool
    message: str
    seconds: float
    detail: dict[str, Any]


class HealthOut(Schema):
    ok: bool
    checks: list[CheckOut]


class Alive(Schema):
    ok: bool


class WorkerOut(Schema):
    """A process and what it and its host use now."""

    worker: str
    kind: str
    host: str
    at: datetime
    runs: list[int] = Field(description="Runs that it works for")
    cpu: float = Field(description="Cores that the process and its descendants use")
    memory: int = Field(description="Their resident bytes")
    host_cpu: float = Field(description="Busy share of all cores, 0 to 1")
    host_cores: int
    host_memory: int
    host_memory_total: int
    received: float | None = Field(description="Network, bytes per second")
    sent: float | None
    disk_read: float | None
    disk_written: float | None
    disk_used: int | None
    disk_total: int | None
    gpus: list[GpuUsage]
