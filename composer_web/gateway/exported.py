"""Export of recorded sessions, one row per session: the content of its page, with tokens."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from composer_web.accounts.models import Role
from composer_web.core.artifacts import ArtifactError
from composer_web.gateway import export_links, exporting, selectors
from composer_web.gateway.configuration import settings_of
from composer_web.gateway.filters import SessionFilter
from composer_web.rollouts.exported import Table
from composer_web.rollouts.exports import ExportFailed
from composer_web.ui.table_writers import Column, Columns, Row

AT_ONCE = 20
"""Sessions in memory at a time. Each row is a whole transcript."""


def _newest_first(rows: QuerySet[Any], columns: Columns, size: int, export: int | None) -> Iterator[list[Row]]:
    configured = functools.cache(settings_of)
    last: int | None = None
    while True:
        page = rows if last is None else rows.filter(pk__lt=last)
        keys = list(page.order_by("-pk").values_list("pk", flat=True)[: min(size, AT_ONCE)])
        if not keys:
            return
        found = selectors.whole(keys if export is None else export_links.hold(export, keys))
        try:
            yield [exporting.document(session, configured(session.channel)) for session in found]
        except ArtifactError as error:  # also of one that was deleted meanwhile: then the export is void already
            raise ExportFailed(f"{error}; ask for the export again") from error
        last = keys[-1]


SESSIONS = Table(
    noun="Sessions",
    filter=SessionFilter,
    rows=selectors.sessions,
    page="gateway:sessions",
    pages=_newest_first,
    role=Role.REVIEWER,
    columns={
        "id": Column("id", "integer"),
        "client_id": Column("client_id"),
        "policy": Column("policy__name"),
        "canary": Column("canary", "truth"),
        "opened_at": Column("opened_at", "time"),
        "reward": Column("reward", "number"),
        "signals": Column("signals", "data"),
        "turns": Column("turns", "data"),
    },
)
