"""HTTP API of requested imports: their progress and outcome."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.policies.http.schemas import PolicyImportOut
from composer_web.policies.imports import orders

router = Router()


@router.get("", response=Page[PolicyImportOut], summary="Imports that were asked for")
def list_imports(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(orders.orders(), limit=limit, before=before)


@router.get("/{import_id}", response={200: PolicyImportOut, 404: ErrorOut}, summary="One that was asked for")
def get_import(request: HttpRequest, import_id: int) -> Any:
    return orders.get_order(import_id)
