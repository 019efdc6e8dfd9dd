"""Exports of filtered lists: requested on a page or through the API, written by a worker, deleted on expiry."""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from django.db import connection, transaction
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.utils import timezone

from composer_web.accounts.access import Access, acting, everywhere
from composer_web.accounts.models import DEFAULT_PROJECT, Role, User
from composer_web.accounts.permissions import may_in, placed
from composer_web.accounts.services import audit
from composer_web.core.errors import NotFound, UserError
from composer_web.core.models import Lease
from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue
from composer_web.env import env
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports.exported import table
from composer_web.ui.table_writers import WRITERS

KEPT = timedelta(days=7)
MAX_OPEN = 5
"""Maximum number of unfinished exports per user."""
CHUNK = 2000
"""Rows read at a time."""
MAX_SECONDS = 1500.0
"""Timeout of one export in seconds."""
LEASE_SECONDS = 30.0
"""A worker without heartbeat loses its export after this many seconds."""
ADVISORY_LOCK = 0x6F63_0003


OPEN = ("waiting", "running")


class ExportFailed(Exception):
    """The export failed. The message names the cause and the remedy."""


class Voided(Exception):
    """The export was voided while being written, because part of its data was deleted."""


def folder() -> Path:
    return env().data / "exports"


def file_of(export: Export) -> Path:
    return folder() / f"{export.what}-{export.pk}.{export.format}"


def part_of(export: Export) -> Path:
    """Temporary file of this worker. Its name contains the lease, so that two workers never write one file."""
    return folder() / f"{_part_prefix(export)}{leases.token()}.part"


def _part_prefix(export: Export) -> str:
    return f".{file_of(export).name}."


@transaction.atomic
def ask(*, owner: User, format: str, query: str, what: str = "rollouts") -> Export:
    """Request an export of the filtered table `what`. Raises UserError, Denied."""
    if format not in WRITERS:
        raise UserError("format", f"format is csv, jsonl or parquet, not {format!r}")
    if format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UserError("format", "Parquet needs the extra `parquet` (pyarrow) on the server; install it, or take CSV")
    if Export.objects.filter(owner=owner, state__in=OPEN).count() >= MAX_OPEN:
        raise UserError("format", f"{MAX_OPEN} exports of yours are not finished yet; wait for one of them")
    table(what).open_to(owner)
    kept = table(what).clean(query)
    table(what).select(kept, asker=owner)
    export = Export.objects.create(owner=owner, what=what, format=format, query=kept)
    audit(actor=owner, action="export.ask", target=f"export:{export.pk}", what=what, format=format, query=kept)
    send(export)
    return export


def send(export: Export) -> None:
    """Request one more export from a worker. The worker picks the next in line, not necessarily this one."""
    enqueue("rollouts.export", {"export_id": export.pk}, queue="io", key=resource(export.pk))


def resource(export_id: int) -> str:
    """Resource name of the writing worker's lease."""
    return f"export:{export_id}"


def own(user: User) -> QuerySet[Export]:
    return Export.objects.filter(owner=user)


def of(user: User, pk: int) -> Export:
    """Export of the user. Admins see all. Raises NotFound."""
    rows = Export.objects.all() if user.may("admin") else Export.objects.filter(owner=user)
    found = rows.select_related("owner").filter(pk=pk).first()
    if found is None:
        raise NotFound("export", pk)
    return found


def opened(user: User, pk: int) -> tuple[Export, BinaryIO]:
    """The finished file, for a user who may still read its content. Raises NotFound, Denied."""
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
    """Void exports. Their files, also partial ones, are deleted with the transaction, and writing stops."""
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
            for part in folder().glob(f"{_part_prefix(export)}*part"):
                part.unlink(missing_ok=True)

    transaction.on_commit(remove, robust=True)


def write_next() -> str:
    """Write the export whose turn it is: one of each person at a time, and of those the one whose owner has waited longest
    since the last. Returns what became of it, for the log.

    Each export sends one message, and a message takes any export; the end of one asks for its owner's next.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:  # one worker after the other chooses
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        if (chosen := _whose_turn()) is None:
            return "none waits whose owner has none under way"
        held = _take(chosen.pk)
        assert held is not None, "nobody else chooses"
    try:
        return _written(chosen.pk, held)
    finally:
        with everywhere(), transaction.atomic():
            if following := Export.objects.filter(owner=chosen.owner_id, state="waiting").order_by("pk").first():
                send(following)


def write(export_id: int) -> str:
    """Write this export out of order. Returns the outcome. A second call does nothing, or restarts after a crash."""
    held = _take(export_id)
    return "another worker writes it" if held is None else _written(export_id, held)


def _take(export_id: int) -> leases.Held | None:
    owner = f"{leases.identity('export')}/{threading.get_ident() % 10_000}"
    return leases.take(resource(export_id), owner=owner, seconds=LEASE_SECONDS)


def under_way() -> set[int]:
    """Exports that a live worker is writing."""
    alive = Lease.objects.filter(expires_at__gte=timezone.now(), resource__startswith="export:").exclude(owner="")
    return {int(name.partition(":")[2]) for name in alive.values_list("resource", flat=True)}


def _whose_turn() -> Export | None:
    with everywhere():
        busy = under_way()
        waiting = Export.objects.filter(state__in=OPEN).exclude(pk__in=busy)
        waiting = waiting.exclude(owner__in=Export.objects.filter(pk__in=busy).values("owner"))
        last = Export.objects.filter(owner=OuterRef("owner"), finished_at__isnull=False).order_by("-finished_at")
        ordered = waiting.annotate(last=Subquery(last.values("finished_at")[:1]))
        return ordered.order_by(F("last").asc(nulls_first=True), "pk").first()


def _written(export_id: int, held: leases.Held) -> str:
    leases.keeper.keep(held)
    try:
        export = Export.objects.select_related("owner").filter(pk=export_id, state__in=OPEN).first()
        if export is None:
            return "nothing to do"
        with leases.under(held):
            try:
                _write(export)
            except Voided:
                return "something in it was deleted meanwhile"
            except (ExportFailed, OSError) as error:
                update_running(
                    export, state="failed", cause=(str(error) or repr(error))[:2000], finished_at=timezone.now()
                )
                return f"failed: {error}"
        return f"{export.rows} rows"
    except (leases.LeaseLost, Voided) as error:
        return f"stopped: {error}"
    finally:
        leases.keeper.drop(held)
        leases.release(held)


def _write(export: Export) -> None:
    """Write with the permissions of the asker, in the project of the request, including material shared with it."""
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
    update_running(export, state="running", total=query.count())
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
                update_running(export)
        now = timezone.now()
        with transaction.atomic():  # its row is locked: who voids it finds it running before this, or done after it
            update_running(export, state="done", finished_at=now, expires_at=now + KEPT, bytes=part.stat().st_size)
            os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


@transaction.atomic
def update_running(export: Export, **values: Any) -> None:
    """Store the progress. Raises Voided, LeaseLost."""
    leases.fence()
    if not Export.objects.filter(pk=export.pk, state__in=OPEN).update(rows=export.rows, **values):
        raise Voided


def expire() -> int:
    """Delete expired exports with their files, and orphaned files. Returns the number of exports."""
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
    rows = list(Export.objects.filter(state__in=[*OPEN, "done"]))
    known = {file_of(export).name for export in rows}
    being_written = tuple(_part_prefix(export) for export in rows if export.state in OPEN)
    for file in files:
        if file.name not in known and not file.name.startswith(being_written):
            file.unlink(missing_ok=True)
    return gone
