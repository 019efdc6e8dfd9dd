"""Filtered lists as files: asked for on a page or by API, written by a worker, removed when they expire."""

from __future__ import annotations

import importlib.util
import os
import time
from datetime import timedelta
from pathlib import Path

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT, Role, User
from composer_web.accounts.reach import may_in, placed
from composer_web.accounts.services import audit
from composer_web.env import env
from composer_web.ops import leases
from composer_web.ops.errors import NotFound, UserError
from composer_web.ops.outbox import enqueue
from composer_web.ops.sheets import WRITERS
from composer_web.rollouts.exported import table
from composer_web.rollouts.kept_models import Export

KEPT = timedelta(days=7)
MOST_OPEN = 5
"""Exports of one person that are not finished."""
CHUNK = 2000
"""Rows that are read at a time."""
MAX_SECONDS = 1500.0
"""Deadline of one export, below the broker's own for a message."""


class ExportFailed(Exception):
    """The file could not be made. The message says why and what to do."""


def folder() -> Path:
    return env().data / "exports"


def file_of(export: Export) -> Path:
    return folder() / f"{export.what}-{export.pk}.{export.format}"


@transaction.atomic
def ask(*, owner: User, format: str, query: str, what: str = "rollouts") -> Export:
    """A worker will write the rows of the table `what` that these filters leave. Raises UserError."""
    if format not in WRITERS:
        raise UserError("format", f"format is csv, jsonl or parquet, not {format!r}")
    if format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UserError("format", "Parquet needs the extra `parquet` (pyarrow) on the server; install it, or take CSV")
    if Export.objects.filter(owner=owner, state__in=["waiting", "running"]).count() >= MOST_OPEN:
        raise UserError("format", f"{MOST_OPEN} exports of yours are not finished yet; wait for one of them")
    kept = table(what).clean(query)
    table(what).select(kept, asker=owner)
    export = Export.objects.create(owner=owner, what=what, format=format, query=kept)
    audit(actor=owner, action="export.ask", target=f"export:{export.pk}", what=what, format=format, query=kept)
    enqueue("rollouts.export", {"export_id": export.pk}, queue="eval", key=f"export:{export.pk}")
    return export


def own(user: User) -> QuerySet[Export]:
    return Export.objects.filter(owner=user)


def of(user: User, pk: int) -> Export:
    """One's own; admins see all. Raises NotFound."""
    rows = Export.objects.all() if user.may("admin") else Export.objects.filter(owner=user)
    found = rows.select_related("owner").filter(pk=pk).first()
    if found is None:
        raise NotFound("export", pk)
    return found


def write(export_id: int) -> str:
    """Make the file; returns what became of it, for the log. A second delivery does nothing, or begins anew after a death."""
    held = leases.take(f"export:{export_id}", owner=leases.identity("export"), seconds=MAX_SECONDS)
    if held is None:
        return "another worker writes it"
    try:
        export = Export.objects.select_related("owner").filter(pk=export_id, state__in=["waiting", "running"]).first()
        if export is None:
            return "nothing to do"
        try:
            _write(export)
        except (ExportFailed, OSError) as error:
            Export.objects.filter(pk=export_id).update(
                state="failed", cause=str(error)[:2000], finished_at=timezone.now()
            )
            return f"failed: {error}"
        return f"{export.rows} rows"
    finally:
        leases.release(held)


def _write(export: Export) -> None:
    """As who asked, in the project where it was asked for, with what its libraries share."""
    places = placed(export.owner_id)
    project = export.project_id or DEFAULT_PROJECT
    held = [role for role in Role.values if export.owner.is_active and may_in(export.owner, project, role)]
    if not held:
        raise ExportFailed(f"{export.owner.username} may not read this project any more")
    shared = tuple(place["id"] for place in places if place["library"] and not place["archived"])
    with acting(Access(export.owner_id, held[-1], project, project, shared)):
        _fill(export)


def _fill(export: Export) -> None:
    wanted = table(export.what)
    try:
        query = wanted.select(export.query, asker=export.owner)
    except UserError as error:
        raise ExportFailed(f"{error}; it was there when this export was asked for") from error
    export.state, export.rows, export.total = "running", 0, query.count()
    export.save(update_fields=["state", "rows", "total"])
    end = time.monotonic() + MAX_SECONDS
    folder().mkdir(parents=True, exist_ok=True)
    target = file_of(export)
    part = target.with_name(f".{target.name}.part")
    try:
        with WRITERS[export.format](part, wanted.columns) as put:
            for rows in wanted.pages(query, wanted.columns, CHUNK):
                if time.monotonic() > end:
                    raise ExportFailed(f"not done within {MAX_SECONDS:.0f} s; narrow the filters")
                put(rows)
                export.rows += len(rows)
                Export.objects.filter(pk=export.pk).update(rows=export.rows)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    now = timezone.now()
    Export.objects.filter(pk=export.pk).update(
        state="done", finished_at=now, expires_at=now + KEPT, bytes=target.stat().st_size
    )


def expire() -> int:
    """Remove what has expired, with its file, and files that no export names; returns how many exports."""
    gone = 0
    for export in Export.objects.filter(expires_at__lt=timezone.now()):
        file_of(export).unlink(missing_ok=True)
        export.delete()
        gone += 1
    Export.objects.filter(state="failed", finished_at__lt=timezone.now() - KEPT).delete()
    known = {file_of(export).name for export in Export.objects.all()}
    for file in folder().glob("*-*.*"):
        if file.name not in known:
            file.unlink(missing_ok=True)
    return gone
