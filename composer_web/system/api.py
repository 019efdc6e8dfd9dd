"""HTTP API of health, and of what workers and hosts use."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from composer_web.api.schemas import ErrorOut
from composer_web.api.usage import Asked, UsageOut, usage_out
from composer_web.core.queue import usage
from composer_web.system.health import checks
from composer_web.system.schemas import Alive, CheckOut, HealthOut, WorkerOut

router = Router()


@router.get("", response=HealthOut, summary="Every part and whether it answers")
def get_health(request: HttpRequest) -> Any:
    found = checks()
    return {"ok": all(check.ok for check in found), "checks": [CheckOut.from_orm(check) for check in found]}


@router.get("/live", response=Alive, auth=None, summary="This web process answers (no log-in; for supervisors)")
def live(request: HttpRequest) -> Any:
    return {"ok": True}


@router.get("/workers", response=list[WorkerOut], summary="What each process and its host use now")
def list_workers(request: HttpRequest) -> Any:
    """Processes that reported within a minute, inference servers included."""
    return sorted(usage.current().values(), key=lambda one: (one.kind, one.worker))


@router.get(
    "/usage",
    response={200: UsageOut, 422: ErrorOut},
    summary="CPU, memory, network, disk and GPU of all workers over time",
)
def get_usage(request: HttpRequest, asked: Query[Asked], worker: str = "") -> Any:
    """The last hour by default; `worker` narrows it to one process."""
    first, last, resolution = asked.range()
    found = [one for one in usage.sources(first=first, last=last) if worker in ("", one.worker)]
    return usage_out(found, first=first, last=last, resolution=resolution)
