"""HTTP API of health."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from composer_web.system.health import checks
from composer_web.system.schemas import Alive, CheckOut, HealthOut

router = Router()


@router.get("", response=HealthOut, summary="Every part and whether it answers")
def get_health(request: HttpRequest) -> Any:
    found = checks()
    return {"ok": all(check.ok for check in found), "checks": [CheckOut.from_orm(check) for check in found]}


@router.get("/live", response=Alive, auth=None, summary="This web process answers (no log-in; for supervisors)")
def live(request: HttpRequest) -> Any:
    return {"ok": True}
