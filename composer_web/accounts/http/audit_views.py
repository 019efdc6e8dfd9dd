"""Audit log views: a page with filters, and the same as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_safe
from django_tables2 import RequestConfig

from composer_web.accounts.http.filters import AuditFilter, entries
from composer_web.accounts.http.tables import AuditTable
from composer_web.ui.filters import WrongFilter, strict
from composer_web.ui.pages import PageRequest, page, show
from composer_web.ui.streaming import spooled, streamed
from composer_web.ui.table_writers import cell

PER_PAGE = 50
COLUMNS = ("id", "at", "actor_name", "via", "credential", "address", "action", "target", "detail", "changes")
MAX_ROWS = 200_000
"""Maximum rows of one CSV file. Filter by date for more."""


@require_safe
@page("admin")
def audit_log(request: PageRequest) -> HttpResponse:
    found = strict(AuditFilter, request.GET, queryset=entries())
    table = AuditTable(found.qs)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": table})
    return show(request, "accounts/audit.html", {"table": table, "filter": found, "live": "ops"})


@require_safe
@page("admin")
def audit_csv(request: PageRequest) -> Any:
    """Filtered entries, newest first. Invalid filters are errors, never ignored."""
    try:
        found = strict(AuditFilter, request.GET, queryset=entries())
    except WrongFilter as error:
        return HttpResponse(f"wrong filter: {error.message}", status=422, content_type="text/plain")
    return streamed(request, spooled(_lines(found)), content_type="text/csv; charset=utf-8", name="audit.csv")


class _Echo:
    """File object for csv.writer that returns each line."""

    def write(self, line: str) -> str:
        return line


def _lines(found: AuditFilter) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for row in found.qs.values_list(*COLUMNS)[:MAX_ROWS].iterator(chunk_size=2000):
        yield writer.writerow([cell(value) for value in row])
