"""HTTP API of policies behind endpoints."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.policies import endpoints
from composer_web.policies.http.schemas import EndpointChange, EndpointIn, EndpointOut

router = Router()


@router.get("", response=Page[EndpointOut], summary="List endpoints; never their keys")
def list_endpoints(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(endpoints.endpoints(), limit=limit, before=before)


@router.post(
    "",
    response={201: EndpointOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Add a policy behind an OpenAI-compatible endpoint",
)
def add(request: HttpRequest, payload: EndpointIn) -> Any:
    endpoints.add(actor=caller(request), **payload.model_dump())
    return Status(201, endpoints.get(payload.name))


@router.get("/{name}", response={200: EndpointOut, 404: ErrorOut}, summary="One endpoint; never its key")
def get(request: HttpRequest, name: str) -> Any:
    return endpoints.get(name)


@router.put(
    "/{name}",
    response={200: EndpointOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Change an endpoint; its model stays",
)
def change(request: HttpRequest, name: str, payload: EndpointChange) -> Any:
    endpoints.change(policy=endpoints.get(name).policy, actor=caller(request), **payload.model_dump())
    return endpoints.get(name)
