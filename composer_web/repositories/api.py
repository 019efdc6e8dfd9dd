"""Environments over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.repositories import selectors
from composer_web.repositories.schemas import EnvironmentIn, EnvironmentOut, LogOut

router = Router()


@router.get("", response=Page[EnvironmentOut], summary="List environments")
def list_environments(
    request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None
) -> Any:
    return page(selectors.environments(), limit=limit, before=before)


@router.post(
    "",
    response={201: EnvironmentOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Build an environment",
)
def build(request: HttpRequest, payload: EnvironmentIn) -> Any:
    from composer_web.repositories.building import request_package

    environment = request_package(name=payload.package, actor=caller(request))
    return Status(201, selectors.get_environment(environment.pk))


@router.get("/{name}", response={200: EnvironmentOut, 404: ErrorOut}, summary="One environment")
def get_environment(request: HttpRequest, name: str) -> Any:
    return selectors.get_environment(name)


@router.get("/{name}/log", response={200: LogOut, 404: ErrorOut, 503: ErrorOut}, summary="The last build's log")
def get_log(request: HttpRequest, name: str) -> Any:
    return {"text": selectors.build_log(selectors.get_environment(name))}
