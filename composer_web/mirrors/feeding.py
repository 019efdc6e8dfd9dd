"""Feeds the committed points of each run into a mirror, once and in order.

How far a run is mirrored lies in `<data>/mirrors/<kind>/<run>.json`, written after the mirror has the points for good. A
step that a resumed run trained again was stored anew and comes again, with its new value.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from django.db import connection
from django.utils import timezone
from pydantic import BaseModel

from composer_web.env import env
from composer_web.env.addresses import MIRRORS
from composer_web.mirrors.base import About, Kept, Mirror, MirrorError, Point
from composer_web.runs.models import RUN_FINAL, Run, RunState

SETTLED = timedelta(seconds=5)
"""Points younger than this may still be overtaken by ones whose transaction began before theirs."""
MAX_POINTS = 50_000
"""Points read at a time."""


class Place(BaseModel):
    """How far a run is mirrored."""

    at: datetime | None = None
    kept: Kept = {}


def _file(kind: str, run_id: int) -> Path:
    return env().data / "mirrors" / kind / f"{run_id}.json"


def place_of(kind: str, run_id: int) -> Place:
    try:
        return Place.model_validate_json(_file(kind, run_id).read_text())
    except FileNotFoundError:
        return Place()


def note_place(kind: str, run_id: int, place: Place) -> None:
    file = _file(kind, run_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    with new.open("w") as out:
        out.write(place.model_dump_json())
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)


def points_after(run_id: int, at: datetime | None, *, until: datetime) -> list[Point]:
    """Stored after `at` and before `until`, in the order in which they were stored; points of one moment stay together."""
    query = """
        SELECT m.at, m.step, k.name, m.value FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id
        WHERE m.run_id = %(run)s AND m.at < %(until)s AND (%(at)s::timestamptz IS NULL OR m.at > %(at)s)
        ORDER BY m.at FETCH FIRST %(most)s ROWS WITH TIES
    """
    with connection.cursor() as cursor:
        cursor.execute(query, {"run": run_id, "at": at, "until": until, "most": MAX_POINTS})
        return sorted(Point(*row) for row in cursor.fetchall())


@dataclass
class Feeder:
    """One kind of mirror for all runs. Only one process may feed a kind: the second one raises MirrorError."""

    kind: str
    to: str
    mirrors: dict[int, Mirror] = field(default_factory=dict)
    seen: dict[int, dict[str, float]] = field(default_factory=dict)
    """Latest values of runs that were fed to their end: unchanged ones are not asked for again."""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        file = _file(self.kind, 0).with_name("lock")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise MirrorError(f"another process feeds {self.kind} from {file.parent}; stop it first") from error
            yield

    def feed(self, *, settled: timedelta = SETTLED) -> int:
        """Everything that is new in any run. Returns the number of points. Raises MirrorError."""
        total = 0
        for run in Run.objects.exclude(state=RunState.DRAFT).order_by("pk").iterator():
            if self.seen.get(run.pk) == run.latest:
                continue
            until = timezone.now() - settled
            fed = self.feed_run(run, until=until)
            total += fed
            if not fed and run.state in RUN_FINAL:
                self.seen[run.pk] = run.latest
        return total

    def feed_run(self, run: Run, *, until: datetime) -> int:
        total, place = 0, place_of(self.kind, run.pk)
        while points := points_after(run.pk, place.at, until=until):
            kept = self.mirror(run).write(points, place.kept)
            place = Place(at=points[-1].at, kept=kept)
            note_place(self.kind, run.pk, place)
            total += len(points)
        return total

    def mirror(self, run: Run) -> Mirror:
        if run.pk not in self.mirrors:
            about = About(id=run.pk, name=run.name, config=run.config, tags=tuple(run.tags))
            self.mirrors[run.pk] = maker(self.kind)(about, self.to)
        return self.mirrors[run.pk]


def maker(kind: str) -> type:
    """Raises MirrorError for an unknown kind or a missing extra."""
    if kind not in MIRRORS:
        raise MirrorError(f"there is no mirror {kind!r}; there are {', '.join(MIRRORS)}")
    found: type = getattr(importlib.import_module(f"composer_web.mirrors.{kind}"), MIRRORS[kind])
    return found
