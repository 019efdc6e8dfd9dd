"""Filtered lists of rollouts as files: asked for on a page or by API, written by a worker, removed when they expire."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import transaction
from django.http import QueryDict
from django.utils import timezone

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT, User
from composer_web.accounts.services import audit
from composer_web.env import env
from composer_web.ops import leases
from composer_web.ops.errors import NotFound, UserError
from composer_web.ops.outbox import enqueue
from composer_web.ops.sheets import cell
from composer_web.rollouts import saved_queries, selectors
from composer_web.rollouts.filters import RolloutFilter
from composer_web.rollouts.kept_models import Export
from composer_web.rollouts.models import Rollout

KEPT = timedelta(days=7)
MOST_OPEN = 5
"""Exports of one person that are not finished."""
CHUNK = 2000
"""Rows that are read at a time."""
MAX_SECONDS = 1500.0
"""Deadline of one export, below the broker's own for a message."""

FIELDS: dict[str, str] = {
    "rollout": "id",
    "run": "group__run_id",
    "evaluation": "group__evaluation_id",
    "fork": "group__fork_id",
    "group": "group_id",
    "task": "group__task_version__task__slug",
    "prompt_index": "group__prompt_index",
    "sample": "sample",
    "state": "state",
    "verdict": "verdict",
    "reward": "reward",
    "reward_parts": "reward_parts",
    "stop_reason": "stop_reason",
    "cause": "cause",
    "turns": "turns",
    "tool_calls": "tool_calls",
    "tool_errors": "tool_errors",
    "policy_tokens": "policy_tokens",
    "total_tokens": "total_tokens",
    "oldest_version": "oldest_version",
    "newest_version": "newest_version",
    "group_mean_reward": "group__mean_reward",
    "consumed_step": "group__consumed_step",
    "finished_at": "finished_at",
}
"""Column → where it is read."""

NUMBERS = {
    "rollout", "run", "evaluation", "fork", "group", "prompt_index", "sample", "turns", "tool_calls", "tool_errors",
    "policy_tokens", "total_tokens", "oldest_version", "newest_version", "consumed_step",
}  # fmt: skip
SHARES = {"reward", "group_mean_reward"}

Row = dict[str, Any]
Write = Callable[[list[Row]], None]


class ExportFailed(Exception):
    """The file could not be made. The message says why and what to do."""


def folder() -> Path:
    return env().data / "exports"


def file_of(export: Export) -> Path:
    return folder() / f"rollouts-{export.pk}.{export.format}"


@transaction.atomic
def ask(*, owner: User, format: str, query: str) -> Export:
    """A worker will write the rollouts that these filters leave. Raises UserError."""
    if format not in dict(Export._meta.get_field("format").choices or ()):
        raise UserError("format", f"format is csv, jsonl or parquet, not {format!r}")
    if format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UserError("format", "Parquet needs the extra `parquet` (pyarrow) on the server; install it, or take CSV")
    if Export.objects.filter(owner=owner, state__in=["waiting", "running"]).count() >= MOST_OPEN:
        raise UserError("format", f"{MOST_OPEN} exports of yours are not finished yet; wait for one of them")
    kept = saved_queries.clean(query)
    found = RolloutFilter(QueryDict(kept), queryset=Rollout.objects.none())
    if not found.is_valid():
        name, errors = next(iter(found.errors.items()))
        raise UserError(name, f"{name}: {' '.join(map(str, errors))}")
    export = Export.objects.create(owner=owner, format=format, query=kept)
    audit(actor=owner, action="export.ask", target=f"export:{export.pk}", format=format, query=kept)
    enqueue("rollouts.export", {"export_id": export.pk}, queue="eval", key=f"export:{export.pk}")
    return export


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
        export = Export.objects.filter(pk=export_id, state__in=["waiting", "running"]).first()
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
    project = export.project_id or DEFAULT_PROJECT
    with acting(Access(export.owner_id, "viewer", project, project)):
        _fill(export)


def _fill(export: Export) -> None:
    query = RolloutFilter(QueryDict(export.query), queryset=selectors.rollouts()).qs
    export.state, export.rows, export.total = "running", 0, query.count()
    export.save(update_fields=["state", "rows", "total"])
    end = time.monotonic() + MAX_SECONDS
    folder().mkdir(parents=True, exist_ok=True)
    target = file_of(export)
    part = target.with_name(f".{target.name}.part")
    try:
        with WRITERS[export.format](part) as put:
            last: int | None = None
            while True:
                page = query if last is None else query.filter(pk__lt=last)
                rows = list(page.order_by("-pk").values(*FIELDS.values())[:CHUNK])
                if not rows:
                    break
                if time.monotonic() > end:
                    raise ExportFailed(f"not done within {MAX_SECONDS:.0f} s; narrow the filters")
                put([{name: row[source] for name, source in FIELDS.items()} for row in rows])
                last, export.rows = rows[-1]["id"], export.rows + len(rows)
                Export.objects.filter(pk=export.pk).update(rows=export.rows)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    now = timezone.now()
    Export.objects.filter(pk=export.pk).update(
        state="done", finished_at=now, expires_at=now + KEPT, bytes=target.stat().st_size
    )


@contextmanager
def _csv(path: Path) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        yield lambda rows: writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)


@contextmanager
def _jsonl(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(
            json.dumps(row, default=lambda at: at.isoformat(), ensure_ascii=False) + "\n" for row in rows
        )


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {
        name: pa.int64() if name in NUMBERS else pa.float64() if name in SHARES else pa.string() for name in FIELDS
    }
    schema = pa.schema(list((kinds | {"finished_at": pa.timestamp("us", tz="UTC")}).items()))
    with parquet.ParquetWriter(path, schema) as writer:

        def put(rows: list[Row]) -> None:
            plain = [{**row, "reward_parts": json.dumps(row["reward_parts"], ensure_ascii=False)} for row in rows]
            writer.write_table(pa.Table.from_pylist(plain, schema=schema))

        yield put


TYPES = {"csv": "text/csv", "jsonl": "application/jsonl", "parquet": "application/vnd.apache.parquet"}
WRITERS = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}


def expire() -> int:
    """Remove what has expired, with its file, and files that no export names; returns how many exports."""
    gone = 0
    for export in Export.objects.filter(expires_at__lt=timezone.now()):
        file_of(export).unlink(missing_ok=True)
        export.delete()
        gone += 1
    Export.objects.filter(state="failed", finished_at__lt=timezone.now() - KEPT).delete()
    known = {file_of(export).name for export in Export.objects.all()}
    for file in folder().glob("rollouts-*"):
        if file.name not in known:
            file.unlink(missing_ok=True)
    return gone
