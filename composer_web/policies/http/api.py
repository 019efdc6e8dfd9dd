"""HTTP API of policies."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.policies.measurement import measuring, measurement_jobs
from composer_web.policies import selectors
from composer_web.policies.imports import orders
from composer_web.policies.measurement.measurement_schemas import MeasurementIn, MeasurementOrderOut, Wanted
from composer_web.policies.http.schemas import MeasurementOut, PolicyDetail, PolicyImportIn, PolicyImportOut, PolicyOut

router = Router()


@router.get("", response=Page[PolicyOut], summary="List policies")
def list_policies(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(selectors.policies(), limit=limit, before=before)


@router.post(
    "",
    response={202: PolicyImportOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Import a model as a policy",
)
def import_policy(request: HttpRequest, payload: PolicyImportIn) -> Any:
    """A worker does it: ask `/policy-imports/ID` until it is `done`, or `failed` with the cause."""
    return Status(202, orders.ask(**payload.model_dump(), actor=caller(request)))


@router.get("/{name}", response={200: PolicyDetail, 404: ErrorOut}, summary="One policy with lineage and checkpoints")
def get_policy(request: HttpRequest, name: str) -> Any:
    return selectors.get_policy(name)


@router.get(
    "/{name}/measurements",
    response={200: list[MeasurementOut], 404: ErrorOut},
    summary="What a policy scored on codebases, with others on the same text",
)
def list_measurements(request: HttpRequest, name: str) -> Any:
    groups = measuring.measured(selectors.get_policy(name))
    return [MeasurementOut.of(row) for group in groups for row in group]


@router.post(
    "/{name}/measurements",
    response={202: MeasurementOrderOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Measure a policy on a codebase",
)
def measure_policy(request: HttpRequest, name: str, payload: MeasurementIn) -> Any:
    """A worker does it: ask `/measurements/ID` until it is `done`. What is asked for twice at a time is measured once."""
    wanted = Wanted.model_validate(payload.model_dump(exclude={"version"}))
    policy = selectors.get_policy(name)
    return Status(202, measurement_jobs.ask(policy=policy, version=payload.version, wanted=wanted, actor=caller(request)))
