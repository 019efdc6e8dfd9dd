"""HTTP API of the audit log."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from composer_web.accounts.http.filters import AuditFilter, entries
from composer_web.accounts.http.schemas import AuditOut
from composer_web.api.auth import needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import Page

router = Router()


@router.get("", response=Page[AuditOut], auth=needs("admin"), summary="Who changed what")
def list_entries(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    who: str = "",
    action: str = "",
    target: str = "",
    via: str = "",
    since: date | None = None,
    until: date | None = None,
) -> Any:
    """Newest first; the filters are those of the page."""
    return page(filtered(AuditFilter, request, entries()), limit=limit, before=before)
