"""Log lines of a run's processes: kept, bounded, searched, deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from composer_web.env import env
from composer_web.live.hints import hint
from composer_web.runs.models import Run, RunLog

LEVELS = ("info", "warning", "error")
MAX_LINES = 5000
"""Lines kept of a process of a run; the newest stay."""
MAX_CHARACTERS = 4000
"""Longest line; the rest is cut off, and the line says so."""

_run: ContextVar[int | None] = ContextVar("run_of_log_lines", default=None)


@contextmanager
def lines_of(run_id: int | None) -> Iterator[None]:
    """What is logged inside belongs to this run; to none if it is None. Tasks of an event loop inherit it."""
    before = _run.set(run_id)
    try:
        yield
    finally:
        _run.reset(before)


def run_of_lines() -> int | None:
    return _run.get()


def keep(*, run_id: int, process: str, lines: Sequence[RunLog]) -> None:
    """Store lines of a process, and delete its oldest beyond `MAX_LINES`."""
    RunLog.objects.bulk_create(lines)
    own = RunLog.objects.filter(run_id=run_id, process=process)
    first_too_many = own.order_by("-pk").values_list("pk", flat=True)[MAX_LINES : MAX_LINES + 1]
    for pk in first_too_many:
        own.filter(pk__lte=pk).delete()
    hint(f"log:{run_id}")


def found(run: Run, *, q: str = "", level: str = "", process: str = "") -> QuerySet[RunLog]:
    """Newest first. `level` includes more severe ones; `q` is a text in the message or the logger's name."""
    rows = RunLog.objects.filter(run=run).order_by("-pk")
    if q:
        rows = rows.filter(message__icontains=q) | rows.filter(logger__icontains=q)
    if level in LEVELS:
        rows = rows.filter(level__in=LEVELS[LEVELS.index(level) :])
    return rows.filter(process=process) if process else rows


def processes(run: Run) -> list[str]:
    return sorted(set(RunLog.objects.filter(run=run).order_by().values_list("process", flat=True).distinct()))


def prune() -> int:
    """Delete lines past the retention."""
    return RunLog.objects.filter(at__lt=timezone.now() - timedelta(days=env().run_log_days)).delete()[0]
