"""Filtered lists as files: asked for on a page or by API, written by a worker, removed when they expire."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.access import Access, acting, everywhere
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


OPEN = ("waiting", "running")


class ExportFailed(Exception):
    """The file could not be made. The message says why and what to do."""


class Voided(Exception):
    """Something that the file was to hold was deleted while it was written, and the export with it."""


def folder() -> Path:
    return env().data / "exports"


def file_of(export: Export) -> Path:
    return folder() / f"{export.what}-{export.pk}.{export.format}"


def part_of(export: Export) -> Path:
    """What is written of it so far, beside its place."""
    file = file_of(export)
    return file.with_name(f".{file.name}.part")


@transaction.atomic
def ask(*, owner: User, format: str, query: str, what: str = "rollouts") -> Export:
    """A worker will write the rows of the table `what` that these filters leave. Raises UserError, Denied."""
    if format not in WRITERS:
        raise UserError("format", f"format is csv, jsonl or parquet, not {format!r}")
    if format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UserError("format", "Parquet needs the extra `parquet` (pyarrow) on the server; install it, or take CSV")
    if Export.objects.filter(owner=owner, state__in=OPEN).count() >= MOST_OPEN:
        raise UserError("format", f"{MOST_OPEN} exports of yours are not finished yet; wait for one of them")
    table(what).open_to(owner)
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


def opened(user: User, pk: int) -> tuple[Export, BinaryIO]:
    """The finished file, for who may read what is in it now. Raises NotFound, Denied."""
    export = of(user, pk)
    table(export.what).open_to(user)
    if export.state == "done":
        try:
            return export, file_of(export).open("rb")
        except FileNotFoundError:
            export.refresh_from_db()  # it went between the two looks
    said = export.cause or ("it has expired; ask for it again" if export.state == "done" else f"it is {export.state}")
    raise NotFound("file of export", f"{pk}: {said}")


@transaction.atomic
def void(*, pks: Iterable[int], why: str, actor: User | None) -> None:
    """Their files go with the end of the transaction, also half written ones, and nothing more is written to them."""
    with everywhere():
        found = list(Export.objects.select_for_update().filter(pk__in=pks, state__in=[*OPEN, "done"]).order_by("pk"))
        for export in found:
            export.state, export.bytes, export.finished_at, export.expires_at = "void", 0, timezone.now(), None
            export.cause = f"{why}, and this file with it; ask for the export again"
            export.save(update_fields=["state", "bytes", "finished_at", "expires_at", "cause"])
            audit(actor=actor, action="export.void", target=f"export:{export.pk}", why=why)

    def remove() -> None:  # what a death here leaves, `expire` removes
        for export in found:
            file_of(export).unlink(missing_ok=True)
            part_of(export).unlink(missing_ok=True)

    transaction.on_commit(remove, robust=True)


def write(export_id: int) -> str:
    """Make the file; returns what became of it, for the log. A second delivery does nothing, or begins anew after a death."""
    held = leases.take(f"export:{export_id}", owner=leases.identity("export"), seconds=MAX_SECONDS)
    if held is None:
        return "another worker writes it"
    try:
        export = Export.objects.select_related("owner").filter(pk=export_id, state__in=OPEN).first()
        if export is None:
            return "nothing to do"
        try:
            _write(export)
        except Voided:
            return "something in it was deleted meanwhile"
        except (ExportFailed, OSError) as error:
            Export.objects.filter(pk=export_id, state__in=OPEN).update(
                state="failed", cause=(str(error) or repr(error))[:2000], finished_at=timezone.now()
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
    if (least := table(export.what).role) not in held:
        raise ExportFailed(f"{export.owner.username} has not the role {least} any more, which this export needs")
    shared = tuple(place["id"] for place in places if place["library"] and not place["archived"])
    with acting(Access(export.owner_id, held[-1], project, project, shared)):
        _fill(export)


def _fill(export: Export) -> None:
    wanted = table(export.what)
    try:
        query = wanted.select(export.query, asker=export.owner)
    except UserError as error:
        raise ExportFailed(f"{error}; it was there when this export was asked for") from error
    export.rows = 0
    _still(export, state="running", total=query.count())
    end = time.monotonic() + MAX_SECONDS
    folder().mkdir(parents=True, exist_ok=True)
    target = file_of(export)
    part = part_of(export)
    try:
        with WRITERS[export.format](part, wanted.columns) as put:
            for rows in wanted.pages(query, wanted.columns, CHUNK, export.pk):
                if time.monotonic() > end:
                    raise ExportFailed(f"not done within {MAX_SECONDS:.0f} s; narrow the filters")
                put(rows)
                export.rows += len(rows)
                _still(export)
        now = timezone.now()
        with transaction.atomic():  # its row is locked: who voids it finds it running before this, or done after it
            _still(export, state="done", finished_at=now, expires_at=now + KEPT, bytes=part.stat().st_size)
            os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _still(export: Export, **values: Any) -> None:
    """Set how far it is. Raises Voided."""
    if not Export.objects.filter(pk=export.pk, state__in=OPEN).update(rows=export.rows, **values):
        raise Voided


def expire() -> int:
    """Remove what has expired, with its file, and files of no export that has one; returns how many exports."""
    now = timezone.now()
    gone = 0
    for pk in Export.objects.filter(expires_at__lt=now).values_list("pk", flat=True):
        with transaction.atomic():
            export = Export.objects.select_for_update().filter(pk=pk, expires_at__lt=now).first()
            if export is not None:
                file_of(export).unlink(missing_ok=True)
                export.delete()
                gone += 1
    Export.objects.filter(state__in=["failed", "void"], finished_at__lt=now - KEPT).delete()
    files = list(folder().glob("*-*.*"))  # before the rows are read: what is made meanwhile is in neither
    rows = Export.objects.filter(state__in=[*OPEN, "done"])
    known = {path.name for export in rows for path in (file_of(export), part_of(export))}
    for file in files:
        if file.name not in known:
            file.unlink(missing_ok=True)
    return gone
