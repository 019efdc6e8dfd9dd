"""Policies behind endpoints over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.schemas import ErrorOut
from composer_web.policies import endpoints
from composer_web.policies.schemas import EndpointChange, EndpointIn, EndpointOut

router = Router()


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
