"""Processes and hosts of the system page, each with what it uses now and in the last half hour."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from composer_web.core.models import WorkerSample
from composer_web.core.queue import overview, usage


@dataclass(frozen=True)
class Process:
    """A process with a heartbeat, or an inference server, which has only samples."""

    name: str
    kind: str
    state: str
    pid: int | None
    started_at: datetime | None
    seen_at: datetime
    detail: dict[str, Any]
    now: WorkerSample | None
    """None if it reported nothing within a minute."""
    cpu: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Host:
    now: WorkerSample
    cpu: list[float]
    memory: list[float]
    received: list[float]
    sent: list[float]
    gpus: list[tuple[dict[str, Any], list[float]]]
    """Each GPU, with the curve of its utilisation."""


def board() -> dict[str, Any]:
    """Processes and hosts. Three queries."""
    now = usage.current()
    curves = usage.sparks(now.values())
    known = overview.workers()
    found = [
        Process(
            one.name,
            one.kind,
            one.state,
            one.pid,
            one.started_at,
            one.beat_at,
            one.detail,
            *_use(one.name, now, curves),
        )
        for one in known
    ]
    silent = now.keys() - {one.name for one in known}
    found += [
        Process(name, now[name].kind, "alive", None, None, now[name].at, {}, *_use(name, now, curves))
        for name in sorted(silent)
    ]
    return {"processes": found, "hosts": [_host(one, curves) for one in usage.hosts(now.values())]}


def _use(
    name: str, now: dict[str, WorkerSample], curves: dict[str, list[float]]
) -> tuple[WorkerSample | None, list[float], list[float]]:
    return now.get(name), curves.get(f"cpu/{name}", []), curves.get(f"memory/{name}", [])


def _host(one: WorkerSample, curves: dict[str, list[float]]) -> Host:
    def curve(measure: str, subject: str = one.host) -> list[float]:
        return curves.get(f"{measure}/{subject}", [])

    gpus = [(gpu, curve("gpu", f"{one.host} {gpu['index']}")) for gpu in one.gpus]
    return Host(one, curve("host_cpu"), curve("host_memory"), curve("received"), curve("sent"), gpus)
