"""HTTP API of requested measurements: progress and cancellation."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.policies import measurement_jobs
from composer_web.policies.schemas import MeasurementOrderOut

router = Router()


@router.get("", response=Page[MeasurementOrderOut], summary="Measurements that were asked for")
def list_measurements(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    policy: str = Query("", description="Name of the policy"),
) -> Any:
    rows = measurement_jobs.orders()
    return page(rows.filter(policy__name=policy) if policy else rows, limit=limit, before=before)


@router.get("/{order_id}", response={200: MeasurementOrderOut, 404: ErrorOut}, summary="One that was asked for")
def get_measurement(request: HttpRequest, order_id: int) -> Any:
    return measurement_jobs.get_order(order_id)


@router.post(
    "/{order_id}/stop",
    response={200: MeasurementOrderOut, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Stop one",
)
def stop_measurement(request: HttpRequest, order_id: int) -> Any:
    return measurement_jobs.stop(order=measurement_jobs.get_order(order_id), actor=caller(request))
